//! Python binding of the service that runs a policy for this machine's connections.

use std::path::Path;

use pyo3::prelude::*;
use skyhop_policyd::{default_name, serve};

use crate::errors::Fallible;
use crate::service_control::PyServiceControl;

/// Counters and latencies of a policy service.
#[pyclass(frozen, get_all)]
pub(crate) struct ServedPolicy {
    connections: u64,
    decisions: u64,
    clamped: u64,
    not_a_number: u64,
    latency_p50_us: Option<f64>,
    latency_p99_us: Option<f64>,
}

/// Run a policy until Ctrl-C for connections whose congestion control is `name` (default: from the card's file name).
/// `note` is called with messages for the user.
#[pyfunction]
pub(crate) fn serve_policy(
    py: Python<'_>,
    file: &str,
    name: Option<String>,
    note: Py<PyAny>,
) -> Fallible<ServedPolicy> {
    let mut control = PyServiceControl::new(note);
    let loaded = py.detach(|| skyhop_ccfile::load_policy(&skyhop_ccfile::card_path(file)))?;
    let name = name.unwrap_or_else(|| default_name(Path::new(file)));
    let served = py.detach(|| serve(file, &loaded, &name, &mut control));
    control.end(py)?;
    let served = served?;
    Ok(ServedPolicy {
        connections: served.connections,
        decisions: served.outputs.decisions,
        clamped: served.outputs.clamped,
        not_a_number: served.outputs.not_a_number,
        latency_p50_us: served.latencies.quantile_us(0.5),
        latency_p99_us: served.latencies.quantile_us(0.99),
    })
}
