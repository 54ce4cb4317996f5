// SluiceModel
