# Debian's libprotobuf-dev has no file for find_package(protobuf CONFIG), which the client asks for.
find_package(Protobuf MODULE REQUIRED)
set(protobuf_FOUND TRUE)
