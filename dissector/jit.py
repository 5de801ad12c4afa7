"""The one kernel decorator, and the cache of compiled code that notices every edit.

The compiler's own cache looks only at the file of the kernel itself: it kept stale code after an
edit to a kernel, a bundle or a constant in another file. Here the cache folder of a module is named
by a digest over the module, every module of ours that it imports (at any depth), the compiler's
version and the bounds-check switch, so that an edit recompiles what depends on it and nothing else.
"""

import hashlib
import os
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator
from numba.core.ccallback import CFunc
from numba.core.registry import cpu_target
from numba.core.sigutils import normalize_signature
from numba.core.typing.templates import AttributeTemplate
from numba.extending import (
    NativeValue,
    infer_getattr,
    intrinsic,
    lower_getattr_generic,
    models,
    register_model,
    typeof_impl,
    unbox,
)
from numba.np.arrayobj import make_array, populate_array

Function = TypeVar("Function", bound=Callable[..., Any])

PACKAGE = "dissector"
_PACKAGE_FOLDER = Path(__file__).resolve().parent
_IMPORT = re.compile(
    r"^(?:from[ \t]+(dissector[\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n#]*)"
    r"|import[ \t]+(dissector[\w.]*))",
    re.MULTILINE,
)
# Callbacks are first-class functions, which the compiler calls experimental at every use.
warnings.filterwarnings("ignore", category=numba.NumbaExperimentalFeatureWarning)
_texts: dict[str, tuple[bytes, tuple[str, ...]] | None] = {}


def bounds_checked() -> bool:
    """Whether kernels raise on an index outside an array (a test mode, several times slower)."""
    return os.environ.get("DISSECTOR_BOUNDSCHECK", "") not in ("", "0")


def compiled() -> bool:
    """Whether kernels are compiled; NUMBA_DISABLE_JIT=1 runs them as plain Python."""
    return not numba.config.DISABLE_JIT


def cache_folder() -> Path:
    """The folder that holds compiled code: DISSECTOR_CACHE, or one in the user's cache folder."""
    chosen = os.environ.get("DISSECTOR_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "pulsar-dissector"


def _module_path(module: str) -> Path | None:
    parts = module.split(".")
    if parts[0] != PACKAGE:
        return None
    base = _PACKAGE_FOLDER.joinpath(*parts[1:])
    for candidate in (base.with_suffix(".py") if len(parts) > 1 else None, base / "__init__.py"):
        if candidate is not None and candidate.is_file():
            return candidate
    return None


def _read_module(module: str) -> tuple[bytes, tuple[str, ...]] | None:
    """The text of one of our modules and the names of our modules that it imports."""
    if module not in _texts:
        path = _module_path(module)
        if path is None:
            _texts[module] = None
        else:
            text = path.read_bytes()
            found: list[str] = []
            for source, names, plain in _IMPORT.findall(text.decode("utf-8", "replace")):
                if plain:
                    found.append(plain)
                    continue
                found.append(source)
                found.extend(f"{source}.{name}" for name in re.findall(r"\w+", names))
            _texts[module] = (text, tuple(found))
    return _texts[module]


def module_digest(module: str) -> str:
    """A digest of a module, everything of ours that it imports, the compiler and the switch."""
    seen: dict[str, bytes] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        content = _read_module(name)
        if content is None:
            continue
        seen[name] = content[0]
        waiting.extend(content[1])
    digest = hashlib.sha256()
    digest.update(f"{numba.__version__} {sys.version_info[:3]} {bounds_checked()}".encode())
    for name in sorted(seen):
        digest.update(name.encode() + b"\0" + hashlib.sha256(seen[name]).digest())
    return digest.hexdigest()[:24]


class _Locator(_CacheLocator):  # type: ignore[misc]
    """Tells the compiler's cache where code of a function lies and when it is stale."""

    def __init__(self, py_func: Callable[..., Any], py_file: str) -> None:
        self._digest = module_digest(py_func.__module__)
        self._folder = cache_folder() / f"{py_func.__module__}-{self._digest}"

    def get_cache_path(self) -> str:
        return str(self._folder)

    def get_source_stamp(self) -> str:
        return self._digest

    def get_disambiguator(self) -> str:
        return self._digest[:10]

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> "_Locator | None":
        if not py_func.__module__.startswith(PACKAGE + "."):
            return None
        return cls(py_func, py_file)


class _CacheImpl(CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = [_Locator]  # noqa: RUF012 - the base class defines it so


class _Cache(FunctionCache):  # type: ignore[misc]
    _impl_class = _CacheImpl


def _is_ours(function: Callable[..., Any]) -> bool:
    return function.__module__.startswith(PACKAGE + ".")


_can_write: list[bool] = []


def _cache_is_writable() -> bool:
    """Whether compiled code can be kept; says so once where it cannot."""
    if not _can_write:
        folder = cache_folder()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _can_write.append(os.access(folder, os.W_OK | os.X_OK))
        except OSError:
            _can_write.append(False)
        if not _can_write[0]:
            warnings.warn(
                f"compiled code cannot be kept in {folder}: every run compiles anew; "
                "set DISSECTOR_CACHE to a folder that can be written",
                RuntimeWarning,
                stacklevel=3,
            )
    return _can_write[0]


def kernel(function: Function) -> Function:
    """Compile a function of arrays and integers: nogil, cached on disk, without Python objects."""
    return _decorate(function, inline=False)


def inlined(function: Function) -> Function:
    """Like kernel, for small helpers that the compiler shall always inline into their callers."""
    return _decorate(function, inline=True)


def _decorate(function: Function, inline: bool) -> Function:
    # Without the runtime (_nrt) the compiler counts no references: kernels allocate nothing, so
    # nothing needs counting, and a call with a few arrays costs 15 ns instead of 70.
    dispatcher = numba.njit(
        nogil=True,
        boundscheck=bounds_checked(),
        error_model="numpy",
        forceinline=inline,
        _nrt=False,
    )(function)
    if compiled():
        _type_constants_as_numbers(dispatcher)
        if not inline and _is_ours(function) and _cache_is_writable():
            dispatcher._cache = _Cache(function)
    return cast(Function, dispatcher)


def _type_constants_as_numbers(dispatcher: Any) -> None:
    """Let a call with a constant use the code for any number.

    The compiler types a constant argument as a literal and compiles the callee anew for each value:
    one helper of a hash table was compiled ten times, most of 37 s for one module [M].
    """
    resolve = dispatcher.get_call_template

    def resolve_numbers(arguments: Any, keywords: Any) -> Any:
        return resolve(
            [types.unliteral(each) for each in arguments],
            {name: types.unliteral(each) for name, each in keywords.items()},
        )

    dispatcher.get_call_template = resolve_numbers


def callback(signature: Any, function: Function) -> Function:
    """Compile a function that kernels take as a value, such as a protocol's header check.

    Args:
        signature: numba signature; callbacks of equal signatures can stand in one tuple, which a
            kernel indexes at run time. Without the compiler the function stays as it is.
    """
    function = getattr(function, "py_func", function)
    if not compiled():
        return function
    found = _callbacks.get((signature, function))
    if found is None:
        native = CFunc(
            function,
            normalize_signature(signature),
            locals={},
            options={"nopython": True, "boundscheck": bounds_checked()},
        )
        if _is_ours(function) and _cache_is_writable():
            native._cache = _Cache(function)
        native.compile()
        found = _callbacks[(signature, function)] = native
    return cast(Function, found)


_callbacks: dict[tuple[Any, Any], Any] = {}

_MATRIX = types.Array(types.int64, 2, "C")
_ROW = types.Array(types.int64, 1, "C")


class BundleType(types.Type):  # type: ignore[misc]
    """The compiler's type of a matrix bundle: one array, and names for its rows."""

    def __init__(self, name: str, fields: tuple[str, ...]) -> None:
        self.fields = fields
        digest = hashlib.sha256(repr(fields).encode()).hexdigest()
        super().__init__(name=f"Bundle({name}, {digest})")


@register_model(BundleType)
class _BundleModel(models.StructModel):  # type: ignore[misc]
    def __init__(self, dmm: Any, fe_type: Any) -> None:
        super().__init__(dmm, fe_type, [("matrix", _MATRIX)])


@infer_getattr
class _BundleAttributes(AttributeTemplate):  # type: ignore[misc]
    key = BundleType

    def generic_resolve(self, typ: Any, attr: str) -> Any:
        if attr == "matrix":
            return _MATRIX
        return _ROW if attr in typ.fields else None


@lower_getattr_generic(BundleType)
def _bundle_attribute(context: Any, builder: Any, typ: Any, value: Any, attr: str) -> Any:
    """A row as an array that borrows the matrix; the caller of the kernel keeps it alive."""
    matrix_value = cgutils.create_struct_proxy(typ)(context, builder, value=value).matrix
    if attr == "matrix":
        return matrix_value
    matrix = make_array(_MATRIX)(context, builder, value=matrix_value)
    rows = cgutils.unpack_tuple(builder, matrix.shape, 2)[1]
    number = context.get_constant(types.intp, typ.fields.index(attr))
    row = make_array(_ROW)(context, builder)
    item_bytes = context.get_constant(types.intp, 8)
    populate_array(
        row,
        data=builder.gep(matrix.data, [builder.mul(number, rows)]),
        shape=[rows],
        strides=[item_bytes],
        itemsize=item_bytes,
        meminfo=None,
    )
    return row._getvalue()


@unbox(BundleType)
def _unbox_bundle(typ: Any, value: Any, context: Any) -> Any:
    matrix = context.pyapi.object_getattr_string(value, "matrix")
    native = context.unbox(_MATRIX, matrix)
    context.pyapi.decref(matrix)
    bundle = cgutils.create_struct_proxy(typ)(context.context, context.builder)
    bundle.matrix = native.value
    return NativeValue(bundle._getvalue(), is_error=native.is_error, cleanup=native.cleanup)


def register_bundle(cls: type, fields: tuple[str, ...]) -> None:
    """Let kernels take instances of a class whose `matrix` holds the named int64 columns."""
    native = BundleType(f"{cls.__module__}.{cls.__qualname__}", fields)
    cls._numba_type_ = native  # type: ignore[attr-defined]
    typeof_impl.register(cls)(lambda value, context: native)


class StateType(types.Type):  # type: ignore[misc]
    """The compiler's type of a State: one pointer, and the types of the arrays behind it."""

    def __init__(self, name: str, fields: tuple[str, ...], kinds: tuple[Any, ...]) -> None:
        self.fields = fields
        self.kinds = kinds
        text = repr([(field, kind.name) for field, kind in zip(fields, kinds, strict=True)])
        super().__init__(name=f"State({name}, {hashlib.sha256(text.encode()).hexdigest()})")


@register_model(StateType)
class _StateModel(models.StructModel):  # type: ignore[misc]
    def __init__(self, dmm: Any, fe_type: Any) -> None:
        super().__init__(dmm, fe_type, [("words", types.CPointer(types.int64))])


@infer_getattr
class _StateAttributes(AttributeTemplate):  # type: ignore[misc]
    key = StateType

    def generic_resolve(self, typ: Any, attr: str) -> Any:
        return typ.kinds[typ.fields.index(attr)] if attr in typ.fields else None


def _leaves(kind: Any) -> list[Any]:
    """The array types inside a type, in order."""
    if isinstance(kind, BundleType):
        return [_MATRIX]
    if isinstance(kind, types.Array):
        return [kind]
    return [leaf for part in kind.types for leaf in _leaves(part)]


def state_words(value: Any) -> list[int]:
    """What a kernel must know of a value of a State: address and shape of each array, 3 words."""
    if hasattr(value, "matrix"):
        value = value.matrix
    if isinstance(value, tuple):
        return [word for part in value for word in state_words(part)]
    assert value.flags.c_contiguous and value.ndim <= 2
    return [value.ctypes.data, *value.shape, *[1] * (2 - value.ndim)]


def state_type(cls: type, fields: tuple[str, ...], values: list[Any]) -> Any:
    """The type of a State from its class and the values of its fields."""
    kinds = tuple(numba.typeof(value) for value in values)
    return StateType(f"{cls.__module__}.{cls.__qualname__}", fields, kinds)


@lower_getattr_generic(StateType)
def _state_attribute(context: Any, builder: Any, typ: Any, value: Any, attr: str) -> Any:
    number = typ.fields.index(attr)
    first = 3 * sum(len(_leaves(kind)) for kind in typ.kinds[:number])
    words = cgutils.create_struct_proxy(typ)(context, builder, value=value).words
    return _value_at(context, builder, typ.kinds[number], words, first)


def _value_at(context: Any, builder: Any, kind: Any, words: Any, first: int) -> Any:
    """A value whose arrays are described from word `first` on."""
    if isinstance(kind, BundleType):
        bundle = cgutils.create_struct_proxy(kind)(context, builder)
        bundle.matrix = _value_at(context, builder, _MATRIX, words, first)
        return bundle._getvalue()
    if not isinstance(kind, types.Array):
        parts = []
        for part in kind.types:
            parts.append(_value_at(context, builder, part, words, first))
            first += 3 * len(_leaves(part))
        return context.make_tuple(builder, kind, parts)
    loaded = []
    for place in range(3):
        address = builder.gep(words, [ir.Constant(ir.IntType(64), first + place)])
        word = builder.load(address)
        # The arrays stay where they are while a kernel runs, whatever it writes.
        word.set_metadata("invariant.load", builder.module.add_metadata([]))
        loaded.append(word)
    array = make_array(kind)(context, builder)
    item_bytes = context.get_constant(types.intp, kind.dtype.bitwidth // 8)
    data = builder.inttoptr(loaded[0], context.get_data_type(kind.dtype).as_pointer())
    strides = [item_bytes] if kind.ndim == 1 else [builder.mul(loaded[2], item_bytes), item_bytes]
    populate_array(
        array,
        data=data,
        shape=loaded[1 : 1 + kind.ndim],
        strides=strides,
        itemsize=item_bytes,
        meminfo=None,
    )
    return array._getvalue()


@unbox(StateType)
def _unbox_state(typ: Any, value: Any, context: Any) -> Any:
    places = context.pyapi.object_getattr_string(value, "places")
    native = context.unbox(_ROW, places)
    context.pyapi.decref(places)
    array = make_array(_ROW)(context.context, context.builder, value=native.value)
    state = cgutils.create_struct_proxy(typ)(context.context, context.builder)
    state.words = array.data
    return NativeValue(state._getvalue(), is_error=native.is_error, cleanup=native.cleanup)


def cpu_features() -> tuple[str, frozenset[str]]:
    """The kind of machine code that kernels become, and the processor features it may use."""
    triple, _, features = cpu_target.target_context.codegen().magic_tuple()
    return triple, frozenset(part[1:] for part in features.split(",") if part.startswith("+"))


def instruction(name: str, result_bits: int, argument_bits: tuple[int, ...]) -> Callable[..., int]:
    """One instruction of the processor, by its LLVM name, as a function that kernels can call.

    Args:
        name: such as "llvm.x86.sse42.crc32.64.64"; the caller has looked at cpu_features() first.
        result_bits, argument_bits: widths; arguments are int64 and cut to their width, the result
            is filled up with zeros.
    """
    width = ir.IntType(64)
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
        return builder.zext(result, width) if result_bits < 64 else result

    if len(argument_bits) != 2:
        raise ValueError("instructions of two arguments only")

    def typed(_typing: Any, first: Any, second: Any) -> Any:
        if isinstance(first, numba.types.Integer) and isinstance(second, numba.types.Integer):
            return numba.int64(numba.int64, numba.int64), generate
        return None

    return cast(Callable[..., int], intrinsic(typed))
