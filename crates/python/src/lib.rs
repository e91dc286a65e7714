//! Python module `skyhop._core`: conversions between Python and the crates; no logic.

mod access;
mod blind;
mod catalogue;
mod congestion_controls;
mod constellation;
mod engines;
mod errors;
mod experiment;
mod gym;
mod log_lines;
mod measurements;
mod pairs;
mod paths;
mod policy_service;
mod progress;
mod python_cc;
mod python_policy;
mod service_control;
mod signal_service;
mod tables;
mod video;
mod words;

use pyo3::prelude::*;

/// Compiled core of skyhop: the Rust crates as Python classes and functions.
#[pymodule(name = "_core")]
mod core {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::access::{access_ranks, check_access_profile, draw_process, list_access};
    #[pymodule_export]
    use crate::blind::{GridEstimate, estimate_blindly, other_kind};
    #[pymodule_export]
    use crate::catalogue::{
        ConstellationEntry, Entry, list_apps, list_constellations, list_handovers, list_profiles,
        list_qdiscs, list_sites, scenario_schema, sites,
    };
    #[pymodule_export]
    use crate::congestion_controls::{
        CongestionControl, ask_policy, cc_headers, cc_parameters, check_cc, check_cc_file,
        check_policy, kernel_module_source, list_cc, load_cc, load_cc_file, own_cc, policy_cards,
        policy_network, unload_cc,
    };
    #[pymodule_export]
    use crate::constellation::PyConstellation;
    #[pymodule_export]
    use crate::engines::{run_engine, run_for_summary};
    #[pymodule_export]
    use crate::experiment::{PyExperiment, PyRunDirectory, PyScenario};
    #[pymodule_export]
    use crate::gym::{PyAnswering, PyEpisodes, list_rewards};
    #[pymodule_export]
    use crate::measurements::{
        RoundTrips, log_format, read_iperf3, read_leocc_delays, read_mahimahi, read_round_trips,
    };
    #[pymodule_export]
    use crate::pairs::{site_routes, write_all_pairs};
    #[pymodule_export]
    use crate::paths::{PyPathTrace, PySatellites, PyStaging, duration_s, write_bytes};
    #[pymodule_export]
    use crate::policy_service::{ServedPolicy, serve_policy};
    #[pymodule_export]
    use crate::signal_service::serve_signal;
    #[pymodule_export]
    use crate::tables::{PyParquetFile, PyTable, TooLargeError, parquet_bytes};
    #[pymodule_export]
    use crate::video::{
        PyFilm, PyPlayer, PyRateTrace, PySessions, list_controllers, list_films, list_qoes,
        optimum_over_rate, play_over_rate, score_chunks,
    };
    #[pymodule_export]
    use crate::words::did_you_mean;
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    /// Names of the figures of an agent's interval.
    #[pymodule_export]
    const INTERVAL_FIGURES: [&str; skyhop_gym::FIGURES.len()] = skyhop_gym::FIGURES;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::log_lines::begin()?;
        skyhop_ccfile::set_python_reader(crate::python_policy::read);
        skyhop_ccfile::set_python_modules(crate::python_policy::modules);
        crate::words::add_to(module)
    }
}
