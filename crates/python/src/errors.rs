//! Errors of the crates as the exceptions of `skyhop.errors`.

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use skyhop_convert::ConvertError;
use skyhop_engine::EngineError;
use skyhop_files::FileError;
use skyhop_host::HostError;
use skyhop_scenario::ScenarioError;

/// An exception of the class `name` of `skyhop.errors`.
fn exception(name: &str, message: &str) -> PyErr {
    Python::attach(|py| {
        let made = py
            .import("skyhop.errors")
            .and_then(|errors| errors.getattr(name))
            .and_then(|class| class.call1((message,)));
        match made {
            Ok(exception) => PyErr::from_value(exception),
            Err(error) => error,
        }
    })
}

/// The user's input was wrong.
pub(crate) fn input_error(message: &str) -> PyErr {
    exception("InputError", message)
}

/// The run failed.
pub(crate) fn run_error(message: &str) -> PyErr {
    exception("RunError", message)
}

pub(crate) fn from_file(error: &FileError) -> PyErr {
    if error.is_input() { input_error(&error.to_string()) } else { run_error(&error.to_string()) }
}

/// `interruption` is what the progress callback raised, if it did.
pub(crate) fn from_scenario(error: &ScenarioError, interruption: Option<PyErr>) -> PyErr {
    match error {
        ScenarioError::Interrupted => {
            interruption.unwrap_or_else(|| PyKeyboardInterrupt::new_err(()))
        }
        ScenarioError::Record(error) => from_file(error),
        other => input_error(&other.to_string()),
    }
}

pub(crate) fn from_convert(error: &ConvertError) -> PyErr {
    match error {
        ConvertError::File(error) => from_file(error),
        other => input_error(&other.to_string()),
    }
}

pub(crate) fn from_host(error: &HostError) -> PyErr {
    if error.is_input() { input_error(&error.to_string()) } else { run_error(&error.to_string()) }
}

pub(crate) fn from_engine(error: &EngineError) -> PyErr {
    if error.is_input() { input_error(&error.to_string()) } else { run_error(&error.to_string()) }
}
