//! Policies implemented by a Python function, for the simulator: cards with `network.file = "decide.py"`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyList;
use skyhop_policy::{Memory, Model};

use crate::python_cc::{READER, fail, has_failed};

/// Python function `decide`, which gets an observation and returns an output, or None for no decision.
#[derive(Debug)]
struct Function {
    file: String,
    decide: Py<PyAny>,
}

/// Execute a Python file and return its function `decide`.
pub(crate) fn read(file: &Path) -> Result<Arc<dyn Model>, String> {
    let file = file.to_string_lossy().into_owned();
    let decide = Python::attach(|py| {
        let found = py.import(READER)?.call_method1("read_decide", (&file,))?;
        Ok::<_, PyErr>(found.unbind())
    });
    match decide {
        Ok(decide) => Ok(Arc::new(Function { file, decide })),
        Err(error) => Err(Python::attach(|py| error.value(py).to_string())),
    }
}

/// List the modules that a Python file imports from its directory.
pub(crate) fn modules(file: &Path) -> Result<Vec<PathBuf>, String> {
    Python::attach(|py| {
        let listed = py.import(READER)?.call_method1("own_modules", (file,))?;
        listed.extract()
    })
    .map_err(|error: PyErr| Python::attach(|py| error.value(py).to_string()))
}

impl Model for Function {
    fn run(&self, observation: &[f32], _: &mut Memory) -> Option<f64> {
        if has_failed() {
            return None;
        }
        Python::attach(|py| {
            let output = PyList::new(py, observation)
                .and_then(|observation| self.decide.call1(py, (observation,)));
            let output = output.and_then(|output| output.extract::<Option<f64>>(py));
            output.unwrap_or_else(|error| {
                fail(py, error, &self.file, " (in decide)");
                None
            })
        })
    }

    fn runs_anywhere(&self) -> bool {
        false
    }
}
