//! Constants of the Python module: the names that enums have in files, as tuples in the order of
//! the crates' tables.

use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyTuple};
use skyhop_model::{
    AppTable, CongestionState, Direction, EventKind, LossReason, PATH_LINK, PathEventKind,
    PhaseKind,
};

/// Return " (did you mean X?)" with the `known` names that resemble a wrong one, and an empty text if none does.
#[pyfunction]
pub(crate) fn did_you_mean(name: &str, known: Vec<String>) -> String {
    skyhop_units::did_you_mean(name, known.iter().map(String::as_str))
}

pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("PATH_LINK", PATH_LINK)?;
    module.add("RUN_SCHEMA", skyhop_record::SCHEMA_VERSION)?;
    module.add("RUN_COLUMNS", skyhop_record::table_columns().into_py_dict(module.py())?)?;
    add(module, "APP_TABLES", AppTable::ALL.iter().map(|word| word.name()))?;
    add(module, "CONGESTION_STATES", CongestionState::ALL.iter().map(|word| word.name()))?;
    add(module, "DIRECTIONS", Direction::ALL.iter().map(|word| word.name()))?;
    add(module, "EVENT_KINDS", EventKind::all().map(EventKind::name))?;
    add(
        module,
        "EXPORT_FORMATS",
        skyhop_convert::export::FORMATS.iter().map(|format| format.name),
    )?;
    add(module, "HANDOVER_KINDS", PathEventKind::handovers().map(PathEventKind::name))?;
    add(module, "LOSS_REASONS", LossReason::ALL.iter().map(|word| word.name()))?;
    add(module, "PATH_EVENT_KINDS", PathEventKind::ALL.iter().map(|word| word.name()))?;
    add(module, "PHASE_KINDS", PhaseKind::ALL.iter().map(|word| word.name()))
}

fn add(
    module: &Bound<'_, PyModule>,
    name: &str,
    words: impl Iterator<Item = &'static str>,
) -> PyResult<()> {
    module.add(name, PyTuple::new(module.py(), words.collect::<Vec<_>>())?)
}
