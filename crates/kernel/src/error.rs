//! Errors of operations on the running kernel, each with a remedy.

use skyhop_cc::CcError;
use skyhop_ccfile::CcFileError;
use thiserror::Error;

/// Error of an operation on the running kernel; each message is one line with the remedy.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum KernelError {
    /// No module has this name, or its parameters are wrong.
    #[error(transparent)]
    Module(#[from] CcError),
    /// A user's file is wrong or cannot be compiled here.
    #[error(transparent)]
    File(#[from] CcFileError),
    /// The caller lacks the capabilities.
    #[error(
        "loading a congestion control needs root (CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN on the host): run it with sudo"
    )]
    NotRoot,
    /// The kernel has no type information (BTF).
    #[error(
        "this kernel has no type information ({0} is missing): one built with CONFIG_DEBUG_INFO_BTF=y is needed"
    )]
    NoBtf(&'static str),
    /// The kernel does not support congestion controls through BPF.
    #[error(
        "this kernel does not support congestion controls through BPF: Linux 6.1 or newer with CONFIG_BPF_JIT=y is needed"
    )]
    NoStructOps,
    /// The build of skyhop has no BPF objects because clang was missing.
    #[error(
        "this skyhop was built without clang, so cc/{0}.c was not compiled for the kernel: install clang and run make setup again"
    )]
    NotCompiled(&'static str),
    /// The build of skyhop has no libbpf.
    #[error(
        "this skyhop was built without libbpf: install libelf-dev, zlib1g-dev and pkg-config, and run make setup again"
    )]
    NoLibbpf,
    /// The module is already loaded.
    #[error(
        "{module} is already loaded, as {kernel_name}: run skyhop cc unload {module} first to load it again"
    )]
    AlreadyLoaded {
        /// Name of the module.
        module: String,
        /// Name of the module in the kernel.
        kernel_name: String,
    },
    /// The kernel would not accept the name.
    #[error(
        "{0}: is not a valid name for a congestion control: expected 1 to 15 letters, digits, \"_\" and \".\""
    )]
    WrongName(String),
    /// Another congestion control has the name.
    #[error("{0}: a congestion control of this name exists: choose another")]
    NameTaken(String),
    /// No loaded module has the name.
    #[error("{name} is not loaded by skyhop; loaded are: {loaded}")]
    NotLoaded {
        /// Requested name of the module.
        name: String,
        /// Loaded modules, separated by commas.
        loaded: String,
    },
    /// The verifier refuses the module.
    #[error("this kernel's verifier refuses {origin}: {reason}")]
    Refused {
        /// File of the module.
        origin: String,
        /// Last line of the verifier's log.
        reason: String,
    },
    /// A system call failed unexpectedly.
    #[error("{action}: {reason}")]
    System {
        /// Attempted action, as "cannot …".
        action: String,
        /// Error message of the system.
        reason: String,
    },
}

impl KernelError {
    /// Whether the user's input is wrong, as opposed to the system.
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

    /// Missing prerequisite, if that is the only problem: "kernel" (a feature of the kernel, or the
    /// privileges) or "clang".
    pub fn missing(&self) -> Option<&'static str> {
        match self {
            Self::NotRoot | Self::NoBtf(_) | Self::NoStructOps | Self::NoLibbpf => Some("kernel"),
            Self::NotCompiled(_) => Some("clang"),
            Self::File(error) => error.missing(),
            _ => None,
        }
    }
}

/// Extension trait that adds the attempted action to an error.
pub(crate) trait Context<T> {
    /// Convert the error to a [`KernelError::System`] with this action.
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
