"""Values that somebody else has encoded: Avro's container files, taken apart, and messages of Protobuf's library."""


def _long(data, at):
    shift = result = 0
    while True:
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (result >> 1) ^ -(result & 1), at


def _bytes(data, at):
    size, at = _long(data, at)
    return data[at : at + size], at + size


def datum_of_avro_file(data):
    """(schema, the datum) of an uncompressed container file with one row."""
    assert data[:4] == b"Obj\x01"
    at, meta = 4, {}
    while True:
        count, at = _long(data, at)
        if not count:
            break
        for _ in range(count):
            name, at = _bytes(data, at)
            meta[name.decode()], at = _bytes(data, at)
    assert meta.get("avro.codec", b"null") == b"null"
    at += 16
    rows, at = _long(data, at)
    assert rows == 1
    datum, at = _bytes(data, at)
    assert at + 16 == len(data)
    return meta["avro.schema"].decode(), datum


def protobuf_rows(path, number):
    """Writes a descriptor set; (the schema as the export takes it, encoded messages, the rows that they are)."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    colour = file.enum_type.add(name="Colour")
    colour.value.add(name="RED", number=0)
    colour.value.add(name="BLUE", number=1)
    item = file.message_type.add(name="Item")
    item.field.add(name="name", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    order = file.message_type.add(name="Order")
    entry = order.nested_type.add(name="StockEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=field.TYPE_INT32, label=field.LABEL_OPTIONAL)
    order.oneof_decl.add(name="_note")
    for place, (name, kind, more) in enumerate(
        (
            ("id", field.TYPE_INT64, {}),
            ("price", field.TYPE_DOUBLE, {}),
            ("paid", field.TYPE_BOOL, {}),
            ("raw", field.TYPE_BYTES, {}),
            ("colour", field.TYPE_ENUM, {"type_name": ".shop.Colour"}),
            ("item", field.TYPE_MESSAGE, {"type_name": ".shop.Item"}),
            ("tags", field.TYPE_STRING, {"label": field.LABEL_REPEATED}),
            ("stock", field.TYPE_MESSAGE, {"type_name": ".shop.Order.StockEntry", "label": field.LABEL_REPEATED}),
            ("note", field.TYPE_STRING, {"oneof_index": 0, "proto3_optional": True}),
        ),
        1,
    ):
        order.field.add(name=name, number=place, type=kind, **{"label": field.LABEL_OPTIONAL, **more})
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    values, rows = [], []
    for n in range(number):
        message = kind(id=-n, price=n / 4, paid=n % 2 == 0, raw=bytes([n]), colour=n % 2, tags=["t"] * (n % 3))
        message.stock["left"] = n
        row = {
            "id": -n, "price": n / 4, "paid": n % 2 == 0, "raw": bytes([n]), "colour": ("RED", "BLUE")[n % 2],
            "item": None, "tags": ["t"] * (n % 3), "stock": [("left", n)], "note": None,
        }  # fmt: skip
        if n % 3:
            message.item.name = f"näme {n}"
            message.note = ""
            row.update(item={"name": f"näme {n}"}, note="")
        values.append(message.SerializeToString())
        rows.append(row)
    return f"{path}:shop.Order", values, rows
