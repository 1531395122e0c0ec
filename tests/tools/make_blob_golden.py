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


def half(bits):
    return struct.unpack("<e", struct.pack("<H", bits))[0]


def single(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def to_half(x):
    return struct.pack("<e", max(-65504.0, min(65504.0, x)))


def quantised(method, whole, group, params, codes, exact, pack):
    """A frame of a lossy codec. params and exact: bits of halves; codes: -128 to 127."""
    codes = [code & 255 for code in codes]
    parts = [bytes(p >> 8 for p in params), bytes(p & 255 for p in params)]
    if whole:
        parts += [bytes(codes), b""]
    else:
        n = (len(codes) + 1) // 2
        second = codes[n:] + [0] * (2 * n - len(codes))
        parts += [bytes(code >> 4 for code in codes), bytes(a & 15 | (b & 15) << 4 for a, b in zip(codes, second))]
    stored = [pack(part) if part else part for part in parts]
    return (struct.pack("<BBBBII4I", method, 1, 0 if whole else 1, 0, group, len(exact), *map(len, stored)) +
            b"".join(stored) + struct.pack("<%dH" % len(exact), *exact))


def values_of(method, group, row, params, codes, exact):
    """What the codes stand for."""
    exact, out = list(exact), b""
    for i, code in enumerate(codes):
        t, c = divmod(i, row)
        if code == -128:
            out += struct.pack("<H", exact.pop(0))
        elif method == 2:
            out += to_half(single(single(half(params[row + t // group * row + c]) * code) + half(params[c])))
        else:
            out += to_half(single(half(params[t * -(-row // group) + c // group]) * code))
    return out


def lossy_sides(codec, head_dim, pack):
    """[(frame, raw)] of K and V of two layers."""
    sides = []
    n = len(IDS) * head_dim
    for layer in range(2):
        for is_k in (True, False):
            few_bits = codec == 4 and layer == 1 or codec == 3 and not is_k
            if codec == 2 and layer == 1 and not is_k:  # a value that is not finite
                raw = struct.pack("<%dH" % n, *[0x7C00 if i == 1 else 0x3C00 + 16 * i for i in range(n)])
                sides.append((bytes([1, 1, 0, 0]) + lossless(raw, 2, as_it_is), raw))
                continue
            method, group = (2, 2) if is_k or few_bits else (3, 3)
            reach = 4 if few_bits else 127
            codes = [(i * 37 + layer * 5 + is_k) % (2 * reach + 1) - reach for i in range(n)]
            if head_dim > 100:
                codes = [i // 100 % 5 for i in range(n)]
            exact = []
            if few_bits:
                codes[1] = codes[n - 1] = -128
                exact = [0xFBFF, 0x0001]
            if method == 2:  # centres, some large and below zero, then scales of two groups of rows
                params = [(0xD100 if c % 3 == 1 else 0x3400) + c % 200 for c in range(head_dim)]
                params += [0x2000 + 32 * (c % 60) for c in range(2 * head_dim)]
            else:  # one scale so large that codes reach the largest half
                params = [0x6000 if i == 1 else 0x2400 + 48 * (i % 60) for i in range(len(IDS) * -(-head_dim // group))]
            raw = values_of(method, group, head_dim, params, codes, exact)
            sides.append((quantised(method, few_bits, group, params, codes, exact, pack), raw))
    return sides


def shorter(part):
    packed = zstd(part)
    return packed if len(packed) < len(part) else part


def blob(width, codec, head_dim, side, pack, sides=None):
    key = tagged_hash(b"cento kv key", FINGERPRINT + LAYOUT + struct.pack("<Q", KIND_STAND_IN) +
                      ids_hash(PREFIX) + ids_hash(CONTEXT) + ids_hash(IDS))
    if sides:
        frames, raws = zip(*sides)
    else:
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
for name, codec, head_dim, pack in [("int8", 2, 4, as_it_is), ("k8v4", 3, 5, as_it_is), ("int4", 4, 512, shorter)]:
    sides = lossy_sides(codec, head_dim, pack)
    (DATA / f"blob_{name}.kv").write_bytes(blob(2, codec, head_dim, None, pack, sides))
    # The same KV as it comes back.
    (DATA / f"blob_{name}_values.kv").write_bytes(blob(2, 0, head_dim, None, pack, [(raw, raw) for _, raw in sides]))
