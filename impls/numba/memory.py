"""Matrices in memory, and accesses to four elements at once, which Numba's arrays lack.

    A = matrix(memory, at, rows, stride)   a (rows, stride) array at element `at` of a flat array
    a = load4(A, i, d)                     the four elements A[i, d .. d + 3], by one instruction
    store4(A, i, d, a)                     the reverse

A device function cannot return an array in Numba, and the compiler does not join loads of single
elements to wide ones. So these three are intrinsics (numba.cuda.extending): functions that emit
LLVM instructions where they are called.

They need Numba's private functions make_array and populate_array, which access its arrays in LLVM
(tests/impls/numba/test_forward.py).
"""

from llvmlite import ir
from numba.cuda import types
from numba.cuda.extending import intrinsic
from numba.cuda.np.arrayobj import make_array, populate_array

INT64 = types.int64


@intrinsic
def matrix(typing_context, memory, at, rows, stride):
    """Return a view (rows, stride) of the elements of a flat array from `at` on.

    The array is shared or global. A row has `stride` elements, of which often only the first belong
    to the matrix. Indices are not checked.
    """

    def generate(context, builder, signature, arguments):
        memory, at, rows, stride = arguments
        of = make_array(signature.args[0])(context, builder, memory)
        element = signature.return_type.dtype
        size = ir.Constant(ir.IntType(64), context.get_abi_sizeof(context.get_data_type(element)))
        result = make_array(signature.return_type)(context, builder)
        populate_array(
            result,
            data=builder.gep(of.data, [at]),
            shape=(rows, stride),
            strides=(builder.mul(stride, size), size),
            itemsize=size,
            meminfo=None,
        )
        return result._getvalue()

    return types.Array(memory.dtype, 2, "C")(memory, INT64, INT64, INT64), generate


def _address_of_four(context, builder, type_, array, i, d):
    """Return a pointer to the vector A[i, d .. d + 3], and its alignment."""
    array = make_array(type_)(context, builder, array)
    element = context.get_data_type(type_.dtype)
    _, stride = _parts_of(builder, array.shape, 2)
    at = builder.add(builder.mul(i, stride), d)
    pointer = builder.gep(array.data, [at])
    vector = ir.VectorType(element, 4)
    return builder.bitcast(pointer, vector.as_pointer()), 4 * context.get_abi_sizeof(element)


def _parts_of(builder, value, count):
    """Return the elements of an array or structure in LLVM."""
    return [builder.extract_value(value, n) for n in range(count)]


@intrinsic
def load4(typing_context, array, i, d):
    """A (rows, stride) -> the tuple A[i, d .. d + 3].

    The address must be a multiple of the size of the four elements.
    """

    def generate(context, builder, signature, arguments):
        pointer, align = _address_of_four(context, builder, signature.args[0], *arguments)
        loaded = builder.load(pointer, align=align)
        values = [builder.extract_element(loaded, ir.Constant(ir.IntType(32), n)) for n in range(4)]
        return context.make_tuple(builder, signature.return_type, values)

    return types.UniTuple(array.dtype, 4)(array, INT64, INT64), generate


@intrinsic
def store4(typing_context, array, i, d, values):
    """Store a tuple of four to A[i, d .. d + 3]. The address must be aligned as for load4."""

    def generate(context, builder, signature, arguments):
        array, i, d, values = arguments
        pointer, align = _address_of_four(context, builder, signature.args[0], array, i, d)
        vector = ir.Constant(pointer.type.pointee, ir.Undefined)
        for n, value in enumerate(_parts_of(builder, values, 4)):
            vector = builder.insert_element(vector, value, ir.Constant(ir.IntType(32), n))
        builder.store(vector, pointer, align=align)
        return context.get_dummy_value()

    return types.void(array, INT64, INT64, types.UniTuple(array.dtype, 4)), generate
