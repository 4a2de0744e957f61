"""What the model of the speed knows about devices: each number with its source."""
GUIDE = "CUDA C++ Programming Guide, table of the throughput of arithmetic instructions"
TABLE = "doi 10.1016/j.ultsonch.2023.106546, table 3"

# Of each multiprocessor and cycle, where nothing else is said.
H100 = {
    "name": ("H100 SXM", "NVIDIA H100 white paper"),
    "multiprocessors": (132, "NVIDIA H100 white paper, SXM5"),
    "gigahertz": (1.755, TABLE + "; a limit of power may hold it lower"),
    "schedulers": (4, "NVIDIA H100 white paper: four partitions, each starts an instruction of one warp"),
    "registers": (65536, "CUDA C++ Programming Guide, technical specifications, 9.0"),
    "shared_bytes": (228 << 10, "CUDA C++ Programming Guide, technical specifications, 9.0"),
    "reserved_bytes": (1 << 10, "CUDA C++ Programming Guide, 8.0 and newer: the system's, of each block"),
    "tensor_flop": (4096, "NVIDIA H100 data sheet: 989 TFLOP/s of f16, without sparsity, at 1.83 GHz"),
    "mma_share": (0.629, "arXiv 2402.13499: what mma.sync reaches of that, on average"),
    "group_share": (0.851, "github.com/pranjalssh/fast.cu: 808 TFLOP/s, its fastest product of matrices of 8,192, of 949 at 1.755 GHz"),
    "mufu": (16, GUIDE + ", 9.0: results of ex2"),
    "half": (64, GUIDE + ", 9.0: minima, comparisons, integers, conversions"),
    "fp32": (128, GUIDE + ", 9.0: additions, products, multiply-adds of f32"),
    "shared": (128, "CUDA C++ Programming Guide, shared memory: 32 banks of 4 bytes"),
    "l2_of_device": (5120, TABLE + ": 8,986 GB/s at 1.755 GHz, bytes of the whole device"),
    "memory_latency": (400, TABLE + ", cycles"),
    "shared_latency": (20, TABLE + ", cycles; an exchange between lanes goes the same way"),
    "latency": (4, TABLE + ", cycles of arithmetic"),
}
A100 = dict(
    H100,
    name=("A100 SXM", "NVIDIA A100 white paper"),
    multiprocessors=(108, "NVIDIA A100 white paper"),
    gigahertz=(1.41, "NVIDIA A100 data sheet, boost"),
    shared_bytes=(164 << 10, "CUDA C++ Programming Guide, technical specifications, 8.0"),
    tensor_flop=(2048, "NVIDIA A100 data sheet: 312 TFLOP/s of f16, without sparsity, at 1.41 GHz"),
    mma_share=(1.0, "mma.sync is what that peak is told of"),
    group_share=(0.0, "has no such products"),
    mufu=(16, GUIDE + ", 8.0: results of ex2"),
    half=(64, GUIDE + ", 8.0: minima, comparisons, integers, conversions"),
    fp32=(64, GUIDE + ", 8.0: additions, products, multiply-adds of f32"),
    l2_of_device=(5120, "NVIDIA A100 white paper: bytes of the whole device"),
)
MACHINES = {"h100": H100, "a100": A100}


def numbers(name):
    """{what: number} of a machine."""
    return {what: number for what, (number, _) in MACHINES[name].items()}


def peak(machine):
    """TFLOP/s of the tensor cores."""
    return machine["tensor_flop"] * machine["multiprocessors"] * machine["gigahertz"] / 1e3
