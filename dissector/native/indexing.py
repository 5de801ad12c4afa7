"""How kernels index arrays: an index is a place, never counted from the end.

The compiler's own lowering gives negative indices Python's meaning: two or three instructions at
every access, and a loop over bytes that it cannot turn into a wide copy. Kernels use no negative
index; with bounds checks one raises. Python code that runs uncompiled does not see this, which is
why the kernels' tests run with bounds checks, too.
"""

import operator
from typing import Any

from numba.core import cgutils, types
from numba.extending import lower_builtin
from numba.np.arrayobj import (
    getitem_array_tuple,
    getitem_arraynd_intp,
    load_item,
    setitem_array,
    store_item,
)


def _element(context: Any, builder: Any, array_type: Any, array: Any, indices: list[Any]) -> Any:
    """The address of an element."""
    model = context.data_model_manager[array_type]
    return cgutils.get_item_pointer2(
        context,
        builder,
        data=model.get(builder, array, "data"),
        shape=cgutils.unpack_tuple(builder, model.get(builder, array, "shape")),
        strides=cgutils.unpack_tuple(builder, model.get(builder, array, "strides")),
        layout=array_type.layout,
        inds=indices,
        boundscheck=context.enable_boundscheck,
    )


def _indices(context: Any, builder: Any, index_type: Any, index: Any) -> list[Any] | None:
    """All indices as words; None if they are not plain integers."""
    if isinstance(index_type, types.BaseTuple):
        parts = cgutils.unpack_tuple(builder, index, len(index_type))
        kinds = list(index_type)
    else:
        parts, kinds = [index], [index_type]
    if not all(isinstance(kind, types.Integer) for kind in kinds):
        return None
    return [
        context.cast(builder, part, kind, types.intp)
        for part, kind in zip(parts, kinds, strict=True)
    ]


def _get(original: Any) -> Any:
    def lowered(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array_type, index_type = signature.args
        indices = _indices(context, builder, index_type, arguments[1])
        if indices is None or len(indices) != array_type.ndim:
            return original(context, builder, signature, arguments)
        element = _element(context, builder, array_type, arguments[0], indices)
        return load_item(context, builder, array_type, element)

    return lowered


def _set(context: Any, builder: Any, signature: Any, arguments: Any) -> None:
    array_type, index_type, value_type = signature.args
    indices = _indices(context, builder, index_type, arguments[1])
    if indices is None or len(indices) != array_type.ndim:
        setitem_array(context, builder, signature, arguments)
        return
    element = _element(context, builder, array_type, arguments[0], indices)
    value = context.cast(builder, arguments[2], value_type, array_type.dtype)
    store_item(context, builder, array_type, value, element)


def register() -> None:
    """Tell the compiler; for arrays, which is more specific than its own rules for any buffer."""
    lower_builtin(operator.getitem, types.Array, types.Integer)(_get(getitem_arraynd_intp))
    lower_builtin(operator.getitem, types.Array, types.BaseTuple)(_get(getitem_array_tuple))
    lower_builtin(operator.setitem, types.Array, types.Integer, types.Any)(_set)
    lower_builtin(operator.setitem, types.Array, types.BaseTuple, types.Any)(_set)
