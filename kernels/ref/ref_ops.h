// The reference kernels: plain loops, one file an op. Signatures are those of Ops (compute/ops.h).
#pragma once

#include "compute/ops.h"

namespace cento::ref {

PackedMatrix pack(const ExecContext&, const PackArgs&);
void matmul(const ExecContext&, const MatmulArgs&);
void rms_norm(const ExecContext&, const RmsNormArgs&);
void rope_rows(const ExecContext&, const RopeRowsArgs&);
void cast_rows(const ExecContext&, const CastRowsArgs&);
void kv_place(const ExecContext&, const KvPlaceArgs&);
void kv_deviation(const ExecContext&, const KvDeviationArgs&);
void attention(const ExecContext&, const AttentionArgs&);
void gate(const ExecContext&, const GateArgs&);
void gather(const ExecContext&, const GatherArgs&);
void add(const ExecContext&, const AddArgs&);
void dequant_rows(const ExecContext&, const DequantRowsArgs&);

}  // namespace cento::ref
