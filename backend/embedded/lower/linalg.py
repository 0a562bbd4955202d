"""Factorisations and solvers, batched over leading dimensions. LAPACK's conventions, which PyTorch's are."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.lax import linalg as lapack

from backend.embedded.lower.table import aten, lowers


def _info(x: jax.Array, failed: jax.Array) -> jax.Array:
    """LAPACK's info, int32 of the batch's shape: the first diagonal place (from 1) that ``failed``, else 0."""
    place = jnp.argmax(failed, axis=-1) + 1 if failed.shape[-1] else jnp.zeros(x.shape[:-2], jnp.int32)
    found = jnp.any(failed, axis=-1)
    return jnp.where(found, place, 0).astype(jnp.int32)


def _diagonal(x: jax.Array) -> jax.Array:
    return jnp.diagonal(x, axis1=-2, axis2=-1)


def _lu(x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """``(LU, pivots from 1 in int32, permutation)``."""
    factors, pivots, permutation = lapack.lu(x)
    return factors, pivots.astype(jnp.int32) + 1, permutation


def _solved(factors: jax.Array, permutation: jax.Array, b: jax.Array, trans: int = 0) -> jax.Array:
    """Solve by an LU factorisation: ``trans`` 0 the matrix, 1 its transpose, 2 its adjoint."""
    batch = jnp.broadcast_shapes(factors.shape[:-2], b.shape[:-2])
    factors = jnp.broadcast_to(factors, batch + factors.shape[-2:])
    permutation = jnp.broadcast_to(permutation, batch + permutation.shape[-1:])
    b = jnp.broadcast_to(b, batch + b.shape[-2:])
    solve = lapack.triangular_solve
    if trans == 0:
        b = jnp.take_along_axis(b, permutation[..., None], axis=-2)
        b = solve(factors, b, left_side=True, lower=True, unit_diagonal=True)
        return solve(factors, b, left_side=True, lower=False)
    conjugate = trans == 2
    b = solve(factors, b, left_side=True, lower=False, transpose_a=True, conjugate_a=conjugate)
    b = solve(factors, b, left_side=True, lower=True, unit_diagonal=True, transpose_a=True, conjugate_a=conjugate)
    return jnp.take_along_axis(b, jnp.argsort(permutation, axis=-1)[..., None], axis=-2)


@lowers(aten._linalg_svd.default)
def svd(
    x: jax.Array, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """``(U, S, V^H)``; without ``compute_uv`` the outer two are empty."""
    if not compute_uv:
        empty = jnp.zeros((0,), x.dtype)
        return empty, jnp.linalg.svd(x, full_matrices=False, compute_uv=False), empty
    u, s, vh = jnp.linalg.svd(x, full_matrices=full_matrices)
    return u, s, vh


@lowers(aten.linalg_qr.default)
def qr(x: jax.Array, mode: str = "reduced") -> tuple[jax.Array, jax.Array]:
    """``(Q, R)``; in mode ``r`` Q is empty."""
    if mode == "r":
        return jnp.zeros((0,), x.dtype), jnp.linalg.qr(x, mode="r")
    q, r = jnp.linalg.qr(x, mode=mode)
    return q, r


@lowers(aten._linalg_eigh.default)
def eigh(x: jax.Array, uplo: str = "L", compute_v: bool = True) -> tuple[jax.Array, jax.Array]:
    """``(eigenvalues ascending, eigenvectors)`` of a Hermitian matrix, of which one triangle is read."""
    values, vectors = jnp.linalg.eigh(x, UPLO=uplo.upper(), symmetrize_input=False)
    return values, vectors if compute_v else jnp.zeros((0,), x.dtype)


@lowers(aten.linalg_cholesky_ex.default)
def cholesky(x: jax.Array, *, upper: bool = False, check_errors: bool = False) -> tuple[jax.Array, jax.Array]:
    """``(L, info)``, or ``(L^H, info)`` where ``upper``; info is positive where the matrix is not positive definite."""
    read = jnp.swapaxes(x, -2, -1).conj() if upper else x
    factor = lapack.cholesky(jnp.tril(read), symmetrize_input=False)
    info = _info(x, jnp.isnan(_diagonal(factor).real))
    return jnp.swapaxes(factor, -2, -1).conj() if upper else factor, info


@lowers(aten.linalg_inv_ex.default)
def inverse(x: jax.Array, *, check_errors: bool = False) -> tuple[jax.Array, jax.Array]:
    """``(inverse, info)``; info is positive where the matrix is singular."""
    factors, _, permutation = _lu(x)
    identity = jnp.broadcast_to(jnp.eye(x.shape[-1], dtype=x.dtype), x.shape)
    return _solved(factors, permutation, identity), _info(x, _diagonal(factors) == 0)


@lowers(aten._linalg_solve_ex.default)
def solve(
    a: jax.Array, b: jax.Array, *, left: bool = True, check_errors: bool = False
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """``(X, LU, pivots, info)`` with ``A X = B``, or ``X A = B`` where not ``left``."""
    factors, pivots, permutation = _lu(a)
    info = _info(a, _diagonal(factors) == 0)
    vector = b.ndim == 1 or (b.ndim == a.ndim - 1 and b.shape == a.shape[:-1])
    right = b[..., None] if vector else b
    if left:
        x = _solved(factors, permutation, right)
    else:
        x = jnp.swapaxes(_solved(factors, permutation, jnp.swapaxes(right, -2, -1), trans=1), -2, -1)
    return x[..., 0] if vector else x, factors, pivots, info


@lowers(aten.linalg_lu_factor_ex.default)
def lu_factor(
    x: jax.Array, *, pivot: bool = True, check_errors: bool = False
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """``(LU, pivots, info)``."""
    if not pivot:
        raise NotImplementedError("an LU factorisation without pivoting has no lowering")
    factors, pivots, _ = _lu(x)
    return factors, pivots, _info(x, _diagonal(factors) == 0)


def _permutation(pivots: jax.Array, rows: int) -> jax.Array:
    return lapack.lu_pivots_to_permutation(pivots.astype(jnp.int32) - 1, rows)


@lowers(aten.linalg_lu_solve.default)
def lu_solve(
    factors: jax.Array, pivots: jax.Array, b: jax.Array, *, left: bool = True, adjoint: bool = False
) -> jax.Array:
    """Solve by what :func:`lu_factor` gave."""
    permutation = _permutation(pivots, factors.shape[-2])
    if left:
        return _solved(factors, permutation, b, trans=2 if adjoint else 0)
    # X A = B is A^H X^H = B^H.
    turned = _solved(factors, permutation, jnp.swapaxes(b, -2, -1).conj(), trans=0 if adjoint else 2)
    return jnp.swapaxes(turned, -2, -1).conj()


# _linalg_det and _linalg_slogdet have no lowering: PyTorch's backward takes their LU for that of the transpose where
# the matrix is contiguous, which a lowering cannot know.


@lowers(aten.linalg_solve_triangular.default)
def solve_triangular(
    a: jax.Array, b: jax.Array, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> jax.Array:
    """``X`` with ``A X = B``, or ``X A = B`` where not ``left``, for a triangular ``A``."""
    batch = jnp.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = jnp.broadcast_to(a, batch + a.shape[-2:]), jnp.broadcast_to(b, batch + b.shape[-2:])
    return lapack.triangular_solve(a, b, left_side=left, lower=not upper, unit_diagonal=unitriangular)


@lowers(aten.triangular_solve.default)
def triangular_solve(
    b: jax.Array, a: jax.Array, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[jax.Array, jax.Array]:
    """``(X, A)``: the older form of :func:`solve_triangular`."""
    batch = jnp.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = jnp.broadcast_to(a, batch + a.shape[-2:]), jnp.broadcast_to(b, batch + b.shape[-2:])
    x = lapack.triangular_solve(
        a, b, left_side=True, lower=not upper, transpose_a=transpose, unit_diagonal=unitriangular
    )
    return x, a


def _product(x: Any) -> Any:
    return jnp.matmul(x, jnp.swapaxes(x, -2, -1).conj(), precision=lax.Precision.HIGHEST)


@lowers(aten.cholesky_inverse.default)
def cholesky_inverse(factor: jax.Array, upper: bool = False) -> jax.Array:
    """The inverse of the matrix of which ``factor`` is the Cholesky factor."""
    lower = jnp.swapaxes(factor, -2, -1).conj() if upper else factor
    identity = jnp.broadcast_to(jnp.eye(lower.shape[-1], dtype=lower.dtype), lower.shape)
    turned = lapack.triangular_solve(lower, identity, left_side=True, lower=True)
    return _product(jnp.swapaxes(turned, -2, -1).conj())
