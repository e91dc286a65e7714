//! Control of services from Python: messages to a callable, and Ctrl-C.

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use skyhop_host::ServiceControl;
use skyhop_model::without_numbers;

/// Control that passes messages to a Python callable and polls for Ctrl-C.
pub(crate) struct PyServiceControl {
    note: Py<PyAny>,
    raised: Option<PyErr>,
}

impl PyServiceControl {
    pub(crate) fn new(note: Py<PyAny>) -> Self {
        Self { note, raised: None }
    }

    /// Raise the exception that ended the service, unless it was Ctrl-C, with which services end normally.
    pub(crate) fn end(self, py: Python<'_>) -> PyResult<()> {
        let error = self.raised.filter(|error| !error.is_instance_of::<PyKeyboardInterrupt>(py));
        error.map_or(Ok(()), Err)
    }
}

impl ServiceControl for PyServiceControl {
    fn note(&mut self, note: &str) {
        let called = Python::attach(|py| self.note.call1(py, (without_numbers(note),)).map(drop));
        self.raised = self.raised.take().or(called.err());
    }

    fn interrupted(&mut self) -> bool {
        let checked = Python::attach(|py| py.check_signals());
        self.raised = self.raised.take().or(checked.err());
        self.raised.is_some()
    }
}
