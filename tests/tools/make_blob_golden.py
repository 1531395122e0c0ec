"""Writes tests/data/blob_*.kv from the description in man/cento-blob.5, independently of the program.

python3 tests/tools/make_blob_golden.py        (needs the zstd program)
"""
import hashlib
import pathlib
import struct
import subprocess
import tempfile

DATA = pathlib.Path(__file__).resolve().parent.parent / "data"
IDS, PREFIX, CONTEXT = [5, -1, 70000], [1, 2], [1, 2, 3]
FINGERPRINT, LAYOUT = bytes(range(32)), bytes(range(32, 64))
KIND_STAND_IN = 2


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def tagged_hash(tag, content):
    return hashlib.blake2b(struct.pack("<Q", len(tag)) + tag + content, digest_size=32).digest()


def ids_hash(ids):
    return tagged_hash(b"cento token ids", struct.pack("<Q%di" % len(ids), len(ids), *ids))


def zstd(plane):
    with tempfile.NamedTemporaryFile() as file:
        file.write(plane)
        file.flush()
        return subprocess.run(["zstd", "-19", "--no-check", "-q", "-c", file.name], check=True, capture_output=True).stdout


def lossless(raw, width, pack):
    planes = [raw[width - 1 - p :: width] for p in range(width)]
    stored = [pack(plane) for plane in planes]
    return struct.pack("<%dI" % width, *map(len, stored)) + b"".join(stored)


def blob(width, codec, head_dim, side, pack):
    key = tagged_hash(b"cento kv key", FINGERPRINT + LAYOUT + struct.pack("<Q", KIND_STAND_IN) +
                      ids_hash(PREFIX) + ids_hash(CONTEXT) + ids_hash(IDS))
    raws = [side(layer, which) for layer in range(2) for which in range(2)]
    frames = [raw if codec == 0 else lossless(raw, width, pack) for raw in raws]
    header_bytes = 204 + 4 * len(IDS) + 2 + 4 * 28 + 4
    table, offset = b"", header_bytes
    for raw, frame in zip(raws, frames):
        table += struct.pack("<QQQI", offset, len(frame), len(raw), crc32c(frame))
        offset += len(frame)
    header = b"\x89CKV\r\n\x1a\n" + struct.pack("<IIQ", 1, header_bytes, offset)
    header += FINGERPRINT + LAYOUT + key + ids_hash(PREFIX) + ids_hash(CONTEXT)
    header += struct.pack("<IIIIBBBB", len(IDS), 2, 1, head_dim, 0 if width == 2 else 1, KIND_STAND_IN, 1, 0)
    header += struct.pack("<%di" % len(IDS), *IDS) + bytes([codec] * 2) + table
    return header + struct.pack("<I", crc32c(header)) + b"".join(frames)


def counting(width):
    return lambda layer, which: bytes(layer * 0x80 + which * 0x40 + i + 1 for i in range(len(IDS) * 2 * width))


def as_it_is(plane):
    return plane


assert crc32c(b"123456789") == 0xE3069283
for name, content in {
    "blob_raw_f16.kv": blob(2, 0, 2, counting(2), as_it_is),
    "blob_lossless_f16.kv": blob(2, 1, 2, counting(2), as_it_is),
    "blob_lossless_f32.kv": blob(4, 1, 2, counting(4), as_it_is),
    "blob_lossless_zstd.kv": blob(2, 1, 512, lambda layer, which: bytes(len(IDS) * 512 * 2), zstd),
}.items():
    (DATA / name).write_bytes(content)
