"""The compiler's side of kernels: its types for our arguments, and entries that take words.

Imported only when there is something to compile.
"""

import hashlib
import warnings
from typing import Any, Final

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.compiler_lock import global_compiler_lock
from numba.core.datamodel import models
from numba.core.registry import cpu_target
from numba.core.sigutils import normalize_signature
from numba.core.typing.templates import AttributeTemplate
from numba.extending import (
    infer_getattr,
    intrinsic,
    lower_getattr_generic,
    register_model,
    typeof_impl,
)
from numba.np.numpy_support import as_dtype

from dissector.native import arguments as native_arguments
from dissector.native.arguments import Kind
from dissector.native.code import Code, bounds_checked
from dissector.native.codegen import own_codegen
from dissector.native.indexing import register
from dissector.native.passes import Passes

# Callbacks are first-class functions, which the compiler calls experimental at every use.
warnings.filterwarnings("ignore", category=numba.NumbaExperimentalFeatureWarning)
register()

_MATRIX: Final = types.Array(types.int64, 2, "C")
_ROW: Final = types.Array(types.int64, 1, "C")
_STRIDED: Final = types.Array(types.int64, 1, "A")
_WORD: Final = ir.IntType(64)
_WORD_BYTES: Final = 8


class BundleType(types.Type):  # type: ignore[misc]
    """The compiler's type of a matrix bundle: one array, and names for its rows or columns."""

    def __init__(self, name: str, fields: tuple[str, ...], is_records: bool) -> None:
        self.fields = fields
        self.is_records = is_records
        self.field_type = _STRIDED if is_records else _ROW
        super().__init__(name=f"Bundle({name}, {is_records}, {_short(fields)})")


class StateType(types.Type):  # type: ignore[misc]
    """The compiler's type of a State: one pointer, and the types of the arrays behind it."""

    def __init__(self, name: str, fields: tuple[str, ...], kinds: tuple[Kind, ...]) -> None:
        self.fields = fields
        self.kinds = kinds
        self.types = tuple(type_of(kind) for kind in kinds)
        super().__init__(name=f"State({name}, {_short((fields, kinds))})")


def _short(value: Any) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()


@register_model(BundleType)
class _BundleModel(models.StructModel):  # type: ignore[misc]
    def __init__(self, dmm: Any, fe_type: Any) -> None:
        super().__init__(dmm, fe_type, [("matrix", _MATRIX)])


@register_model(StateType)
class _StateModel(models.StructModel):  # type: ignore[misc]
    def __init__(self, dmm: Any, fe_type: Any) -> None:
        super().__init__(dmm, fe_type, [("pointers", types.CPointer(types.int64))])


@infer_getattr
class _BundleAttributes(AttributeTemplate):  # type: ignore[misc]
    key = BundleType

    def generic_resolve(self, typ: Any, attr: str) -> Any:
        if attr == "matrix":
            return _MATRIX
        return typ.field_type if attr in typ.fields else None


@infer_getattr
class _StateAttributes(AttributeTemplate):  # type: ignore[misc]
    key = StateType

    def generic_resolve(self, typ: Any, attr: str) -> Any:
        return typ.types[typ.fields.index(attr)] if attr in typ.fields else None


@lower_getattr_generic(BundleType)
def _bundle_attribute(context: Any, builder: Any, typ: Any, value: Any, attr: str) -> Any:
    """A field as an array that borrows the matrix; the caller of the kernel keeps it alive."""
    matrix = builder.extract_value(value, 0)
    if attr == "matrix":
        return matrix
    model = context.data_model_manager[_MATRIX]
    shape = model.get(builder, matrix, "shape")
    number = context.get_constant(types.intp, typ.fields.index(attr))
    item_bytes = context.get_constant(types.intp, _WORD_BYTES)
    if typ.is_records:
        rows, start = builder.extract_value(shape, 0), number
        stride = context.get_constant(types.intp, _WORD_BYTES * len(typ.fields))
    else:
        rows, stride = builder.extract_value(shape, 1), item_bytes
        start = builder.mul(number, rows)
    data = builder.gep(model.get(builder, matrix, "data"), [start])
    return _array_of(context, builder, typ.field_type, data, [rows], [stride])


@lower_getattr_generic(StateType)
def _state_attribute(context: Any, builder: Any, typ: Any, value: Any, attr: str) -> Any:
    number = typ.fields.index(attr)
    first = sum(map(native_arguments.word_count, typ.kinds[:number]))
    return _value_at(context, builder, typ.kinds[number], builder.extract_value(value, 0), first)


# -- types


def type_of(kind: Kind) -> Any:
    """The compiler's type of arguments of a kind."""
    letter = kind[0]
    if letter == native_arguments.ARRAY:
        _, dtype, dimensions, layout, is_readonly = kind
        return types.Array(
            numba.from_dtype(np.dtype(dtype)), dimensions, layout, readonly=is_readonly
        )
    if letter in (native_arguments.BUNDLE, native_arguments.RECORDS):
        fields = native_arguments.class_named(kind[1], kind[2])._fields
        return BundleType(f"{kind[1]}.{kind[2]}", fields, letter == native_arguments.RECORDS)
    if letter == native_arguments.STATE:
        cls = native_arguments.class_named(kind[1], kind[2])
        return StateType(f"{kind[1]}.{kind[2]}", cls._fields, kind[3])
    if letter == native_arguments.TUPLE:
        parts = [type_of(part) for part in kind[3]]
        cls = native_arguments.class_named(kind[1], kind[2]) if kind[2] else None
        return types.BaseTuple.from_types(parts, cls)
    if letter == native_arguments.FUNCTION:
        return types.FunctionType(signature_of(kind[1]))
    return types.boolean if letter == "b" else types.int64


def signature_of(text: str) -> Any:
    """The signature that a text says."""
    arguments, result = normalize_signature(text)
    return result(*arguments)


def teach(kernels: type, instructions: type) -> None:
    """Tell the compiler what our global objects stand for.

    Args:
        kernels: the class of kernels, each with a `dispatcher`.
        instructions: the class of processor instructions, each with name and widths.
    """

    def dispatcher_type(value: Any, context: Any) -> Any:
        return types.Dispatcher(value.dispatcher)

    def instruction_type(value: Any, context: Any) -> Any:
        instruction = _intrinsic_of(value.name, value.result_bits, value.argument_bits)
        return cpu_target.typing_context.resolve_value_type(instruction)

    typeof_impl.register(kernels)(dispatcher_type)
    typeof_impl.register(instructions)(instruction_type)


_intrinsics: dict[tuple[str, int, tuple[int, ...]], Any] = {}


def _intrinsic_of(name: str, result_bits: int, argument_bits: tuple[int, ...]) -> Any:
    """One instruction of the processor with two arguments, cut to their widths."""
    key = (name, result_bits, argument_bits)
    if key in _intrinsics:
        return _intrinsics[key]
    signature = ir.FunctionType(
        ir.IntType(result_bits), [ir.IntType(bits) for bits in argument_bits]
    )

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        cut = [
            builder.trunc(value, ir.IntType(bits)) if bits < 64 else value
            for value, bits in zip(arguments, argument_bits, strict=True)
        ]
        function = cgutils.get_or_insert_function(builder.module, signature, name)
        result = builder.call(function, cut)
        return builder.zext(result, _WORD) if result_bits < 64 else result

    def typed(_typing: Any, first: Any, second: Any) -> Any:
        if isinstance(first, types.Integer) and isinstance(second, types.Integer):
            return types.int64(types.int64, types.int64), generate
        return None

    instruction = _intrinsics[key] = intrinsic(typed)
    # It may be first met in the middle of a compilation, after the compiler looked for what is new.
    cpu_target.typing_context.refresh()
    cpu_target.target_context.refresh()
    return instruction


# -- compilation


def new_dispatcher(function: Any, is_inlined: bool) -> Any:
    """What the compiler knows of a kernel.

    Without the runtime (_nrt) the compiler counts no references: kernels allocate nothing, so
    nothing needs counting.
    """
    dispatcher = numba.njit(
        nogil=True,
        boundscheck=bounds_checked(),
        error_model="numpy",
        forceinline=is_inlined,
        no_cpython_wrapper=True,
        no_cfunc_wrapper=True,
        _nrt=False,
        pipeline_class=Passes,
    )(function)
    _type_constants_as_numbers(dispatcher)
    return dispatcher


def _type_constants_as_numbers(dispatcher: Any) -> None:
    """Let a call with a constant use the code for any number.

    The compiler types a constant argument as a literal and compiles the callee anew for each value:
    one helper of a hash table was compiled ten times, most of 37 s for one module.
    """
    resolve = dispatcher.get_call_template

    def resolve_numbers(arguments: Any, keywords: Any) -> Any:
        return resolve(
            [types.unliteral(each) for each in arguments],
            {name: types.unliteral(each) for name, each in keywords.items()},
        )

    dispatcher.get_call_template = resolve_numbers


@global_compiler_lock
@own_codegen()
def compile_kernel(dispatcher: Any, symbol: str, key: tuple[Kind, ...] | str) -> Code:
    """Compile a kernel.

    Args:
        symbol: what its entry is called.
        key: the kinds of its arguments, for an entry that takes their words; or a signature, for
            a function that kernels take as a value.
    """
    if isinstance(key, str):
        return _function(dispatcher, symbol, signature_of(key))
    return _entry(dispatcher, symbol, key)


def _entry(dispatcher: Any, symbol: str, kinds: tuple[Kind, ...]) -> Code:
    """An entry that takes words; those of the result follow: a status, then its parts."""
    compiled = _compiled(dispatcher, tuple(type_of(kind) for kind in kinds))
    described = compiled.fndesc
    result_kind = _result_kind(described.restype)
    context = cpu_target.target_context
    module = context.create_module(symbol)
    entry = ir.Function(module, ir.FunctionType(ir.VoidType(), [_WORD.as_pointer()]), symbol)
    builder = ir.IRBuilder(entry.append_basic_block("entry"))
    words = entry.args[0]
    values = []
    at = 0
    for kind in kinds:
        values.append(_value_at(context, builder, kind, words, at))
        at += native_arguments.word_count(kind)
    status, result = _called(context, builder, described, values)
    _store(builder, words, at, builder.sext(status.code, _WORD))
    _put_result(context, builder, described.restype, result, words, at + 1)
    builder.ret_void()
    return _finished(context, compiled, module, symbol, result_kind)


def _function(dispatcher: Any, symbol: str, signature: Any) -> Code:
    """A plain function with the arguments and the result of a signature."""
    compiled = _compiled(dispatcher, signature.args)
    described = compiled.fndesc
    context = cpu_target.target_context
    module = context.create_module(symbol)
    result_type = context.get_value_type(signature.return_type)
    arguments = [context.get_value_type(each) for each in described.argtypes]
    entry = ir.Function(module, ir.FunctionType(result_type, arguments), symbol)
    builder = ir.IRBuilder(entry.append_basic_block("entry"))
    _, result = _called(context, builder, described, entry.args)
    builder.ret(context.cast(builder, result, described.restype, signature.return_type))
    return _finished(context, compiled, module, symbol, ["n"])


def _called(context: Any, builder: Any, described: Any, values: Any) -> Any:
    """Call what was compiled: its status and its result."""
    signature = context.call_conv.get_function_type(described.restype, described.argtypes)
    callee = ir.Function(builder.module, signature, described.llvm_func_name)
    return context.call_conv.call_function(
        builder, callee, described.restype, described.argtypes, values
    )


def _compiled(dispatcher: Any, arguments: Any) -> Any:
    dispatcher.get_call_template(arguments, {})
    return dispatcher.overloads[tuple(arguments)]


def _finished(context: Any, compiled: Any, module: Any, symbol: str, result: list[Any]) -> Code:
    library = context.codegen().create_library(symbol)
    library.add_ir_module(module)
    library.add_linking_library(compiled.library)
    data, externals = library.emit(symbol)
    return Code(data, symbol, result, externals)


# -- words


def _load(builder: Any, words: Any, index: int) -> Any:
    word = builder.load(builder.gep(words, [ir.Constant(_WORD, index)]))
    # The arrays stay where they are while a kernel runs, whatever it writes.
    word.set_metadata("invariant.load", builder.module.add_metadata([]))
    return word


def _store(builder: Any, words: Any, index: int, value: Any) -> None:
    builder.store(value, builder.gep(words, [ir.Constant(_WORD, index)]))


def _value_at(context: Any, builder: Any, kind: Kind, words: Any, first: int) -> Any:
    """The value of an argument whose words begin at `first`."""
    letter = kind[0]
    typ = type_of(kind)
    if letter == native_arguments.ARRAY:
        return _array_at(context, builder, typ, words, first)
    if letter in (native_arguments.BUNDLE, native_arguments.RECORDS):
        matrix = _array_at(context, builder, _MATRIX, words, first)
        return _struct_of(context, builder, typ, matrix=matrix)
    if letter == native_arguments.TUPLE:
        parts = []
        for part in kind[3]:
            parts.append(_value_at(context, builder, part, words, first))
            first += native_arguments.word_count(part)
        return context.make_tuple(builder, typ, parts)
    word = _load(builder, words, first)
    if letter == native_arguments.STATE:
        pointers = builder.inttoptr(word, _WORD.as_pointer())
        return _struct_of(context, builder, typ, pointers=pointers)
    if letter == native_arguments.FUNCTION:
        function = cgutils.create_struct_proxy(typ)(context, builder)
        function.c_addr = builder.inttoptr(word, cgutils.voidptr_t)
        return function._getvalue()
    return builder.trunc(word, ir.IntType(1)) if letter == "b" else word


def _array_at(context: Any, builder: Any, typ: Any, words: Any, first: int) -> Any:
    shape = [_load(builder, words, first + 1 + index) for index in range(typ.ndim)]
    item_bytes = context.get_constant(types.intp, as_dtype(typ.dtype).itemsize)
    if typ.layout == "C":
        strides = [item_bytes] if typ.ndim == 1 else [builder.mul(shape[1], item_bytes), item_bytes]
    else:
        behind = first + 1 + typ.ndim
        strides = [_load(builder, words, behind + index) for index in range(typ.ndim)]
    pointer = context.get_data_type(typ.dtype).as_pointer()
    data = builder.inttoptr(_load(builder, words, first), pointer)
    return _array_of(context, builder, typ, data, shape, strides)


def _array_of(
    context: Any, builder: Any, typ: Any, data: Any, shape: list[Any], strides: list[Any]
) -> Any:
    """An array that owns nothing."""
    items = shape[0] if typ.ndim == 1 else builder.mul(shape[0], shape[1])
    return _struct_of(
        context,
        builder,
        typ,
        nitems=items,
        itemsize=context.get_constant(types.intp, as_dtype(typ.dtype).itemsize),
        data=data,
        shape=cgutils.pack_array(builder, shape),
        strides=cgutils.pack_array(builder, strides),
    )


def _struct_of(context: Any, builder: Any, typ: Any, **members: Any) -> Any:
    """A structure of these members as one value; the others are zero. A variable in memory, as the
    compiler's own structures are, takes it several times as long to make and to optimise away."""
    model = context.data_model_manager[typ]
    value = cgutils.get_null_value(model.get_value_type())
    for name, member in members.items():
        value = model.set(builder, value, member, name)
    return value


def _result_kind(typ: Any) -> list[Any]:
    """How the words of a result become a Python value."""
    if isinstance(typ, types.BaseTuple):
        cls = getattr(typ, "instance_class", None)
        name = (cls.__module__, cls.__qualname__) if cls is not None else ("", "")
        return ["t", *name, [_result_kind(part) for part in typ.types]]
    if isinstance(typ, types.Integer):
        return ["i"] if typ.signed else ["u"]
    if isinstance(typ, types.Boolean):
        return ["b"]
    if isinstance(typ, types.NoneType):
        return ["n"]
    raise TypeError(f"a kernel that Python calls cannot return {typ}")


def _put_result(context: Any, builder: Any, typ: Any, value: Any, words: Any, index: int) -> int:
    """Store the words of a result; returns the index behind them."""
    if isinstance(typ, types.BaseTuple):
        for number, part in enumerate(typ.types):
            element = builder.extract_value(value, number)
            index = _put_result(context, builder, part, element, words, index)
        return index
    if isinstance(typ, types.NoneType):
        return index
    if value.type.width < _WORD.width:
        is_signed = isinstance(typ, types.Integer) and typ.signed
        value = builder.sext(value, _WORD) if is_signed else builder.zext(value, _WORD)
    _store(builder, words, index, value)
    return index + 1
