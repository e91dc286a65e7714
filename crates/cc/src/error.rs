use thiserror::Error;

/// What can be wrong with the choice of a congestion control and its parameters.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CcError {
    /// There is no such file in `cc/`.
    #[error("no congestion control is called \"{name}\"; there are: {known}")]
    UnknownModule {
        /// What was asked for.
        name: String,
        /// All names, with commas between.
        known: String,
    },
    /// The algorithm declares no such parameter.
    #[error("{module} has no parameter \"{param}\"; it has: {known}")]
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
    #[error("{module}.{param} = \"{value}\": expected {expected}")]
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
    #[error("cc/{module}.c lacks the hook {hook}, which every congestion control must have")]
    MissingHook {
        /// The algorithm.
        module: String,
        /// The hook.
        hook: &'static str,
    },
}
