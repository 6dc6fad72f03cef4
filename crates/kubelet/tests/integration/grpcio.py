"""Serves one message on a unix socket with gRPC's own server: SOCKET METHOD HEX-OF-THE-MESSAGE.

Prints a line once it serves, and ends with its standard input. Exits with 77 without grpcio.
"""

import sys
from concurrent import futures

try:
    import grpc
except ImportError as error:
    print(error)
    sys.exit(77)

socket, method, message = sys.argv[1:]
_, service, name = method.split("/")


def answer(request, context):
    return bytes.fromhex(message)


server = grpc.server(futures.ThreadPoolExecutor(max_workers=1))
# Without serializers, messages are bytes.
handlers = {name: grpc.unary_unary_rpc_method_handler(answer)}
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, handlers)])
server.add_insecure_port(f"unix:{socket}")
server.start()
print("serves", flush=True)
sys.stdin.read()
server.stop(None)
