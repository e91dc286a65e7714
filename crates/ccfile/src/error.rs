use skyhop_cc::CcError;
use thiserror::Error;

/// Why a file of the user's is no congestion control here; each message is one line.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum CcFileError {
    /// It is not there, or cannot be read.
    #[error("{file}: cannot read: {reason}")]
    Read { file: String, reason: String },
    /// The kernel would not take the name, or a scenario not its parameters.
    #[error(
        "{file}: name the file with at most 15 of a-z, A-Z, 0-9 and _, starting with a letter, and .c"
    )]
    Name { file: String },
    /// It is in Python, which only the simulator runs.
    #[error("{file}: is in Python, which runs in the simulator alone (skyhop sim): write it in C")]
    Python { file: String },
    /// A card or its network is not what it should be.
    #[error("{file}: {what}")]
    Policy { file: String, what: String },
    /// What a function in Python that decides lacks; the line names the file.
    #[error("{what}")]
    Decide { what: String },
    /// Its weights are not here.
    #[error("{file}: is not here: {advice}")]
    NoNetwork { file: String, advice: String },
    /// Nothing compiles for this machine.
    #[error(
        "{file}: there is no C compiler here: install one (sudo apt-get install gcc libc6-dev)"
    )]
    NoCompiler { file: String },
    /// Nothing compiles for the kernel.
    #[error("{file}: {problem}: install clang (sudo apt-get install clang linux-libc-dev)")]
    NoClang { file: String, problem: String },
    /// The compiler refuses it.
    #[error("{file}: does not compile for {target} ({compiler}): its messages are above")]
    Compile {
        file: String,
        target: &'static str,
        compiler: String,
        /// What the compiler printed.
        messages: String,
    },
    /// It defines a hook that Linux does not have: the compiler's line says where.
    #[error("{place}: {hook} is no hook of tcp_congestion_ops; there are: {hooks}")]
    UnknownHook { place: String, hook: String, hooks: String },
    /// A header of skyhop's beside it is of another version.
    #[error(
        "{header}: differs from this skyhop's own {name}, which {file} gets without it: remove it or rename it"
    )]
    OtherHeader { file: String, header: String, name: String },
    /// It defines no congestion control.
    #[error(
        "{file}: defines no congestion control: end it with SKYHOP_MODULE(name, \"about it\", .hook = SKYHOP_FN(function), ...)"
    )]
    NoModule { file: String },
    /// What was compiled cannot be loaded.
    #[error(
        "{file}: cannot load what was compiled: {reason} (XDG_CACHE_HOME chooses another place for it)"
    )]
    Load { file: String, reason: String },
    /// It was edited between two compilations for one run.
    #[error("{file}: was changed while the run was being prepared: run it again")]
    Changed { file: String },
    /// A hook is missing, or nobody calls one.
    #[error(transparent)]
    Module(#[from] CcError),
    /// Something cannot be written.
    #[error("{place}: cannot write: {reason}")]
    Write { place: String, reason: String },
}

impl CcFileError {
    /// Whether the file is wrong, rather than the machine.
    pub fn is_input(&self) -> bool {
        !matches!(
            self,
            Self::NoCompiler { .. } | Self::NoClang { .. } | Self::Load { .. } | Self::Write { .. }
        )
    }

    /// What is missing on this machine, where that is all: "clang".
    pub fn missing(&self) -> Option<&'static str> {
        matches!(self, Self::NoClang { .. }).then_some("clang")
    }

    /// What the compiler printed, where it refused.
    pub fn messages(&self) -> Option<&str> {
        match self {
            Self::Compile { messages, .. } => Some(messages),
            _ => None,
        }
    }
}
