//! Congestion controls in files of the user's.
//!
//! A file in C is compiled like those of `cc/`: natively for the simulator ([`load`]), and for the kernel's BPF
//! ([`bpf_objects`]). What was compiled is kept in `$XDG_CACHE_HOME/skyhop/cc` under a digest of everything that it
//! depends on: the file with its headers, the compiler, skyhop's own headers. A file in Python is compiled by nobody
//! here; [`Sources`] knows both.

mod cache;
mod compiler;
mod crash;
mod error;
mod headers;
mod load;
mod sources;

pub use cache::headers_directory;
pub use error::CcFileError;
pub use headers::{example, examples};
pub use load::{Compiled, Loaded, bpf_objects, load};
pub use sources::Sources;
