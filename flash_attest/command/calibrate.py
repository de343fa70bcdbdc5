"""flash-attest calibrate: measures how close correct kernels come to the limits."""

from __future__ import annotations

from flash_attest.arguments import Added, Parser, add_device, add_impl, add_impl_from, add_seed, listed, whole

NAME = "calibrate"
SUMMARY = "how close correct implementations come to the limits of the error budget"
EPILOG = """\
  flash-attest calibrate --impl torch_math --cases 5000

For each regime of inputs, every output and gradient of the drawn cases is compared with its budget. A correct implementation
stays within the budget in every regime. docs/measured/index.md has the figures of the kernels that checked the limits.

Exit status: 0 every case is within the limits; 1 a case is not, or no implementation could be loaded and
calibrated; 2 the command is wrong; 130 interrupted.
"""


def run(arguments: list[str]) -> int:
    """Compare every case with its budget. Returns the exit status."""
    parser = Parser(f"flash-attest {NAME}", "How close do correct kernels come to the limits?", EPILOG)
    add_impl(parser, "all that run on the device")
    add_impl_from(parser)
    parser.add_argument(
        "--cases", type=whole, default=1000, metavar="N", help="the number of cases in each regime (1000)"
    )
    parser.add_argument(
        "--regimes",
        type=listed,
        action=Added,
        metavar="A,B",
        help="only these regimes (all; an unknown name lists the known ones)",
    )
    add_device(parser)
    add_seed(parser, "which cases are drawn (0)")
    options = parser.parse_args(arguments)
    import flash_attest.required  # noqa: F401
    from flash_attest.bench import calibrate

    return calibrate.judge(parser, options)
