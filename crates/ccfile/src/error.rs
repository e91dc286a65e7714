use skyhop_cc::CcError;
use thiserror::Error;

/// Error of a user's congestion control file; each message is one line.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum CcFileError {
    /// The file does not exist or cannot be read.
    #[error("{file}: cannot read: {reason}")]
    Read { file: String, reason: String },
    /// The file name is not a valid name in the kernel and in scenarios.
    #[error(
        "{file}: name the file with at most 15 of a-z, A-Z, 0-9 and _, starting with a letter, and .c"
    )]
    Name { file: String },
    /// The file is in Python, which only the simulator runs.
    #[error("{file}: is in Python, which runs only in the simulator (skyhop sim): write it in C")]
    Python { file: String },
    /// A card or its network is wrong.
    #[error("{file}: {what}")]
    Policy { file: String, what: String },
    /// A file in Python is wrong; the message names the file.
    #[error("{what}")]
    Decide { what: String },
    /// The file with the weights of the card's network is missing.
    #[error("{file}: is not here: {advice}")]
    NoNetwork { file: String, advice: String },
    /// The machine has no C compiler.
    #[error("{file}: no C compiler is installed: install one (sudo apt-get install gcc libc6-dev)")]
    NoCompiler { file: String },
    /// The machine has no clang that compiles for BPF.
    #[error("{file}: {problem}: install clang (sudo apt-get install clang linux-libc-dev)")]
    NoClang { file: String, problem: String },
    /// The file does not compile.
    #[error("{file}: does not compile for {target} ({compiler}): its messages are above")]
    Compile {
        file: String,
        target: &'static str,
        compiler: String,
        /// Output of the compiler.
        messages: String,
    },
    /// The file defines a hook that Linux does not have; `place` is the compiler's position.
    #[error("{place}: {hook} is not a hook of tcp_congestion_ops; its hooks are: {hooks}")]
    UnknownHook { place: String, hook: String, hooks: String },
    /// The directory contains another version of a header of skyhop's.
    #[error(
        "{header}: differs from this skyhop's own {name}, which {file} includes if it is absent: remove it or rename it"
    )]
    OtherHeader { file: String, header: String, name: String },
    /// The file defines no congestion control.
    #[error(
        "{file}: defines no congestion control: end it with SKYHOP_MODULE(name, \"about it\", .hook = SKYHOP_FN(function), ...)"
    )]
    NoModule { file: String },
    /// The compiled object cannot be loaded.
    #[error(
        "{file}: cannot load the compiled object: {reason} (set XDG_CACHE_HOME to cache it elsewhere)"
    )]
    Load { file: String, reason: String },
    /// The file was edited between two compilations for one run.
    #[error("{file}: was changed while the run was being prepared: run it again")]
    Changed { file: String },
    /// A required hook is missing, or a defined hook is never called.
    #[error(transparent)]
    Module(#[from] CcError),
    /// A file or directory cannot be written.
    #[error("{place}: cannot write: {reason}")]
    Write { place: String, reason: String },
}

impl CcFileError {
    /// Whether the user's file is wrong, as opposed to a problem of the machine.
    pub fn is_input(&self) -> bool {
        !matches!(
            self,
            Self::NoCompiler { .. } | Self::NoClang { .. } | Self::Load { .. } | Self::Write { .. }
        )
    }

    /// Missing prerequisite of this machine, if that is the only problem: "clang".
    pub fn missing(&self) -> Option<&'static str> {
        matches!(self, Self::NoClang { .. }).then_some("clang")
    }

    /// Output of the compiler, if it refused the file.
    pub fn messages(&self) -> Option<&str> {
        match self {
            Self::Compile { messages, .. } => Some(messages),
            _ => None,
        }
    }
}
