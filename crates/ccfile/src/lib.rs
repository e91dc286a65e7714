//! Congestion controls in files of the user's.
//!
//! A file in C is compiled like those of `cc/`: natively for the simulator ([`load`]), and for the kernel's BPF
//! ([`bpf_objects`]). What was compiled is kept in `$XDG_CACHE_HOME/skyhop/cc` under a digest of everything that it
//! depends on: the file with its headers, the compiler, skyhop's own headers. A file in Python is compiled by nobody
//! here; [`Sources`] knows both. What a kernel's own build makes modules of is told by [`kernel_module_source`].

mod cache;
mod compiler;
mod crash;
mod error;
mod headers;
mod kernel_module;
mod load;
mod policy;
mod sources;

pub use cache::headers_directory;
pub use error::CcFileError;
pub use headers::{example, examples};
pub use kernel_module::{KernelModuleSource, kernel_module_name, kernel_module_source};
pub use load::{Compiled, Loaded, bpf_objects, load};
pub use policy::{
    LoadedPolicy, card_of, decide_in_python, decided_by, load_policy, policy_cards, policy_network,
    read_card,
};
pub use sources::Sources;
