//! Conversion of the crates' errors to the exceptions of `skyhop.errors`.

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use skyhop_cc::CcError;
use skyhop_ccfile::CcFileError;
use skyhop_convert::ConvertError;
use skyhop_engine::EngineError;
use skyhop_files::FileError;
use skyhop_host::HostError;
use skyhop_kernel::KernelError;
use skyhop_model::without_numbers;
use skyhop_orbit::ConstellationError;
use skyhop_path::PathError;
use skyhop_scenario::ScenarioError;

/// Create an exception of the class `name` of `skyhop.errors` with these arguments.
fn exception<const N: usize>(name: &str, arguments: [&str; N]) -> PyErr {
    let arguments = arguments.map(without_numbers);
    Python::attach(|py| {
        let made = py
            .import("skyhop.errors")
            .and_then(|errors| errors.getattr(name))
            .and_then(|class| class.call1(PyTuple::new(py, arguments)?));
        match made {
            Ok(exception) => PyErr::from_value(exception),
            Err(error) => error,
        }
    })
}

/// Error of a function exported to Python: an exception of `skyhop.errors`, or one that Python has raised. `?` converts
/// every error of the crates to it.
pub(crate) struct Failure(PyErr);

pub(crate) type Fallible<T> = Result<T, Failure>;

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Self {
        Self(error)
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        failure.0
    }
}

/// Create an InputError: the user's input is wrong.
pub(crate) fn input_error(message: &str) -> Failure {
    Failure(exception("InputError", [message]))
}

/// Create a RunError: the run failed.
pub(crate) fn run_error(message: &str) -> Failure {
    Failure(exception("RunError", [message]))
}

macro_rules! failures {
    ($($error:ty, $is_input:expr;)*) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                let is_input: fn(&$error) -> bool = $is_input;
                let of = if is_input(&error) { input_error } else { run_error };
                of(&error.to_string())
            }
        }
    )*};
}
failures! {
    CcError, |_| true;
    ConstellationError, |_| true;
    FileError, FileError::is_input;
    HostError, HostError::is_input;
    PathError, |_| true;
    skyhop_video::FilmError, |_| true;
    skyhop_video::RateTraceError, |_| true;
    skyhop_video::controllers::ControllerError, |_| true;
    skyhop_video::qoe::QoeError, |_| true;
    serde_json::Error, |_| true;
}

impl From<CcFileError> for Failure {
    fn from(error: CcFileError) -> Self {
        let message = error.to_string();
        match error.messages() {
            Some(messages) => Self(exception("CompileError", [&message, messages])),
            None if error.is_input() => input_error(&message),
            None => run_error(&message),
        }
    }
}

impl From<KernelError> for Failure {
    fn from(error: KernelError) -> Self {
        match error {
            KernelError::File(error) => error.into(),
            error if error.is_input() => input_error(&error.to_string()),
            error => run_error(&error.to_string()),
        }
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        if let EngineError::Failed { reason, .. } = &error
            && let Some(error) = reason.downcast_ref::<CcFileError>()
        {
            return error.clone().into();
        }
        let of = if error.is_input() { input_error } else { run_error };
        of(&error.to_string())
    }
}

impl From<ConvertError> for Failure {
    fn from(error: ConvertError) -> Self {
        match error {
            ConvertError::File(error) => error.into(),
            other => input_error(&other.to_string()),
        }
    }
}

impl From<ScenarioError> for Failure {
    fn from(error: ScenarioError) -> Self {
        match error {
            ScenarioError::Interrupted => Self(PyKeyboardInterrupt::new_err(())),
            ScenarioError::Record(error) => error.into(),
            ScenarioError::CcFile(error) => error.into(),
            other => input_error(&other.to_string()),
        }
    }
}
