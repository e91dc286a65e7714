//! Single test binary of the crate: linking takes longer than running most of its tests.

mod damaged;
mod near;
mod quoted;
mod text;
