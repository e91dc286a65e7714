use skyhop_model::one_line;
use skyhop_units::did_you_mean;
use thiserror::Error;

/// Errors in the choice of a congestion control and its parameters.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CcError {
    /// No file in `cc/` and no registered controller has this name.
    #[error(
        "no congestion control is called \"{}\"{}; there are: {known}",
        one_line(name),
        near(name, known)
    )]
    UnknownModule {
        /// Name that was requested.
        name: String,
        /// All available names, comma-separated.
        known: String,
    },
    /// The algorithm declares no such parameter.
    #[error(
        "{module} has no parameter \"{}\"{}; it has: {known}",
        one_line(param),
        near(param, known)
    )]
    UnknownParam {
        /// Name of the algorithm.
        module: String,
        /// Parameter that was requested.
        param: String,
        /// All parameters of the algorithm, comma-separated.
        known: String,
    },
    /// A parameter was given twice.
    #[error("{module}.{param} is given twice; give it once")]
    GivenTwice {
        /// Name of the algorithm.
        module: String,
        /// Name of the parameter.
        param: String,
    },
    /// The parameter does not allow this value.
    #[error("{module}.{param} = \"{}\": expected {expected}", one_line(value))]
    BadValue {
        /// Name of the algorithm.
        module: String,
        /// Name of the parameter.
        param: String,
        /// Value that was given.
        value: String,
        /// Description of the allowed values.
        expected: String,
    },
    /// The algorithm's file leaves out a hook that Linux requires.
    #[error("{origin} lacks the hook {hook}, which every congestion control must have")]
    MissingHook {
        /// File of the algorithm.
        origin: String,
        /// Name of the missing hook, as in `tcp_congestion_ops`.
        hook: &'static str,
    },
    /// The algorithm relies on a hook that the engine never calls.
    #[error(
        "{origin} defines {hook}, which {caller} never calls: leave it out, or run it where it is called"
    )]
    UncalledHook {
        /// File of the algorithm.
        origin: String,
        /// Name of the hook, as in `tcp_congestion_ops`.
        hook: &'static str,
        /// Name of the engine, as in [`Caller::name`](crate::Caller).
        caller: &'static str,
    },
    /// The algorithm requires ECN, which the engine does not have.
    #[error(
        "{name} needs ECN (TCP_CONG_NEEDS_ECN), which {caller} does not have: run it where there is ECN"
    )]
    NoEcn {
        /// Name of the algorithm.
        name: String,
        /// Name of the engine, as in [`Caller::name`](crate::Caller).
        caller: &'static str,
    },
    /// A user's file that has not been compiled and loaded in this process.
    #[error("{}: the congestion control is not loaded", one_line(file))]
    NotLoaded {
        /// Absolute path of the file.
        file: String,
    },
    /// A user's file in another language than C that yields no controller.
    #[error("{what}")]
    File {
        /// Description of the problem, with the file's name.
        what: String,
    },
    /// The name is already registered or belongs to a module.
    #[error("there already is a congestion control \"{name}\"; choose another name")]
    NameTaken {
        /// Name that is taken.
        name: String,
    },
}

/// Hint after a wrong name; `known` is separated by commas.
fn near(name: &str, known: &str) -> String {
    did_you_mean(name, known.split(", "))
}
