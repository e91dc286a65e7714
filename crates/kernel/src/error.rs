//! Why something could not be done with the running kernel.

use skyhop_cc::CcError;
use skyhop_ccfile::CcFileError;
use thiserror::Error;

/// Why something could not be done with the running kernel; each message is one line with the way out.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum KernelError {
    /// There is no such module, or its parameters are wrong.
    #[error(transparent)]
    Module(#[from] CcError),
    /// It is a file of the user's, which is wrong or cannot be compiled here.
    #[error(transparent)]
    File(#[from] CcFileError),
    /// The caller may not.
    #[error(
        "loading a congestion control needs root (CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN on the host): run it with sudo"
    )]
    NotRoot,
    /// The kernel does not say what its structs look like.
    #[error(
        "this kernel has no type information ({0} is missing): one built with CONFIG_DEBUG_INFO_BTF=y is needed"
    )]
    NoBtf(&'static str),
    /// The kernel does not take congestion controls from BPF.
    #[error(
        "this kernel does not take congestion controls from BPF: Linux 6.1 or newer with CONFIG_BPF_JIT=y is needed"
    )]
    NoStructOps,
    /// skyhop was built where clang was missing.
    #[error(
        "this skyhop was built without clang, so cc/{0}.c was not compiled for the kernel: install clang and run make setup again"
    )]
    NotCompiled(&'static str),
    /// skyhop was built where libbpf could not be.
    #[error(
        "this skyhop was built without libbpf: install libelf-dev, zlib1g-dev and pkg-config, and run make setup again"
    )]
    NoLibbpf,
    /// It is there already.
    #[error(
        "{module} is already loaded, as {kernel_name}: run skyhop cc unload {module} first to load it anew"
    )]
    AlreadyLoaded {
        /// The module.
        module: String,
        /// Its name in the kernel.
        kernel_name: String,
    },
    /// A name that the kernel would not take.
    #[error(
        "{0}: is no name for a congestion control: expected 1 to 15 letters, digits, \"_\" and \".\""
    )]
    WrongName(String),
    /// A name that another has.
    #[error("{0}: there is a congestion control of that name already: give another")]
    NameTaken(String),
    /// There is nothing to unload.
    #[error("{name} is not loaded by skyhop; loaded are: {loaded}")]
    NotLoaded {
        /// What was asked for.
        name: String,
        /// What there is, with commas between.
        loaded: String,
    },
    /// The verifier refuses a module.
    #[error("this kernel's verifier refuses {origin}: {reason}")]
    Refused {
        /// The module's file.
        origin: String,
        /// The verifier's last word.
        reason: String,
    },
    /// A system call failed that normally does not.
    #[error("{action}: {reason}")]
    System {
        /// What was tried.
        action: String,
        /// What the system said.
        reason: String,
    },
}

impl KernelError {
    /// Whether what was asked for was wrong, rather than the attempt to do it.
    pub fn is_input(&self) -> bool {
        match self {
            Self::File(error) => error.is_input(),
            Self::Module(_)
            | Self::AlreadyLoaded { .. }
            | Self::WrongName(_)
            | Self::NameTaken(_)
            | Self::NotLoaded { .. } => true,
            _ => false,
        }
    }

    /// What is missing here, where that is all: "kernel" with its rights, or "clang" for the build.
    pub fn missing(&self) -> Option<&'static str> {
        match self {
            Self::NotRoot | Self::NoBtf(_) | Self::NoStructOps | Self::NoLibbpf => Some("kernel"),
            Self::NotCompiled(_) => Some("clang"),
            Self::File(error) => error.missing(),
            _ => None,
        }
    }
}

/// Names what was tried when it fails.
pub(crate) trait Context<T> {
    /// Turns the failure into a [`KernelError::System`].
    fn context(self, action: &str) -> Result<T, KernelError>;
}

impl<T, E: std::fmt::Display> Context<T> for Result<T, E> {
    fn context(self, action: &str) -> Result<T, KernelError> {
        self.map_err(|error| KernelError::System {
            action: action.to_owned(),
            reason: error.to_string(),
        })
    }
}
