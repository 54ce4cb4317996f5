import CNghttp2
import COpenSSL
