import CRdkafka
