//! Congestion controls in users' files: C sources, and cards of learned policies.
//!
//! A file in C is compiled like those of `cc/`: natively for the simulator ([`load`]), and for the kernel's BPF
//! ([`bpf_objects`]). Compiled objects are cached in `$XDG_CACHE_HOME/skyhop/cc` under a digest of all their inputs:
//! the file with all headers that the compiler reads, the compiler, skyhop's own headers. A file in Python is not
//! compiled; [`Sources`] reads files of both languages. [`kernel_module_source`] returns the source of a kernel module.

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
    LoadedPolicy, card_path, controller_decided_by, load_policy, policy_cards, policy_network,
    read_card, set_python_modules, set_python_reader,
};
pub use sources::Sources;
