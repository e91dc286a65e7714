use skyhop_model::one_line;
use thiserror::Error;

/// What can be wrong with the choice of a congestion control and its parameters.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CcError {
    /// There is no such file in `cc/`.
    #[error("no congestion control is called \"{}\"; there are: {known}", one_line(name))]
    UnknownModule {
        /// What was asked for.
        name: String,
        /// All names, with commas between.
        known: String,
    },
    /// The algorithm declares no such parameter.
    #[error("{module} has no parameter \"{}\"; it has: {known}", one_line(param))]
    UnknownParam {
        /// The algorithm.
        module: String,
        /// What was asked for.
        param: String,
        /// All its parameters, with commas between.
        known: String,
    },
    /// A parameter was given twice.
    #[error("{module}.{param} is given twice; give it once")]
    Twice {
        /// The algorithm.
        module: String,
        /// The parameter.
        param: String,
    },
    /// The value is not one that the parameter can take.
    #[error("{module}.{param} = \"{}\": expected {expected}", one_line(value))]
    BadValue {
        /// The algorithm.
        module: String,
        /// The parameter.
        param: String,
        /// What was given.
        value: String,
        /// What would have been right.
        expected: String,
    },
    /// The algorithm's file leaves out a hook that Linux requires.
    #[error("{origin} lacks the hook {hook}, which every congestion control must have")]
    MissingHook {
        /// The algorithm's file.
        origin: String,
        /// The hook.
        hook: &'static str,
    },
    /// The algorithm relies on a hook that nobody would call.
    #[error(
        "{origin} defines {hook}, which {caller} never calls: leave it out, or run it where it is called"
    )]
    UncalledHook {
        /// The algorithm's file.
        origin: String,
        /// The hook.
        hook: &'static str,
        /// The engine.
        caller: &'static str,
    },
    /// The algorithm relies on ECN where there is none.
    #[error(
        "{name} needs ECN (TCP_CONG_NEEDS_ECN), which {caller} does not have: run it where there is ECN"
    )]
    NoEcn {
        /// The algorithm.
        name: String,
        /// The engine.
        caller: &'static str,
    },
    /// A file of the user's that nobody has compiled and loaded in this process.
    #[error("{}: the congestion control is not loaded", one_line(file))]
    NotLoaded {
        /// Its whole name.
        file: String,
    },
    /// A file of the user's that is no C file makes no controller.
    #[error("{what}")]
    File {
        /// What is wrong, with the file's name.
        what: String,
    },
    /// A name can be registered once.
    #[error("there already is a congestion control \"{name}\"; choose another name")]
    NameTaken {
        /// The name.
        name: String,
    },
}
