// DeliveryCore
