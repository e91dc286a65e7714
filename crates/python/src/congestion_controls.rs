//! Congestion controls: the kernel's, and ours in it.

use pyo3::prelude::*;
use skyhop_cc::Module;
use skyhop_kernel::{KernelError, ProgramReport, Status};

use crate::errors::{input_error, run_error};

/// A congestion control that can be chosen or loaded.
#[pyclass(frozen, get_all)]
pub(crate) struct CongestionControl {
    name: String,
    place: &'static str,
    sockets: Option<u64>,
    description: String,
    source: String,
}

/// The kernel's congestion controls, ours that are loaded, and ours that are not.
#[pyfunction]
pub(crate) fn list_cc() -> PyResult<Vec<CongestionControl>> {
    let entries = skyhop_kernel::list().map_err(|error| from_kernel(&error))?;
    Ok(entries
        .into_iter()
        .map(|entry| {
            let (place, module) = match entry.status {
                Status::Kernel => ("kernel", None),
                Status::Loaded(module) => ("loaded", Some(module)),
                Status::Run(module) => ("held by a live run", Some(module)),
                Status::Module(module) => ("not loaded", Some(module)),
            };
            CongestionControl {
                name: entry.name,
                place,
                sockets: entry.sockets,
                description: entry.about.unwrap_or("the kernel's own").to_owned(),
                source: module
                    .map_or("this machine's kernel".to_owned(), |module| format!("cc/{module}.c")),
            }
        })
        .collect())
}

/// Loads a module; returns its name in the kernel, and whether the BPF file system had to be mounted.
#[pyfunction]
pub(crate) fn load_cc(name: &str, parameters: Vec<(String, String)>) -> PyResult<(String, bool)> {
    let parameters: Vec<(&str, &str)> =
        parameters.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    skyhop_kernel::load(module(name)?, &parameters)
        .map(|loaded| (loaded.kernel_name, loaded.mounted_bpffs))
        .map_err(|error| from_kernel(&error))
}

/// Unloads a module; returns its name in the kernel, and how many sockets use it still.
#[pyfunction]
pub(crate) fn unload_cc(name: &str) -> PyResult<(String, Option<u64>)> {
    skyhop_kernel::unload(name)
        .map(|unloaded| (unloaded.kernel_name, unloaded.sockets))
        .map_err(|error| from_kernel(&error))
}

/// What the verifier says of each hook of a module: name, instructions, and how many it looked at. Refuses
/// what the simulator would not call, too.
#[pyfunction]
pub(crate) fn check_cc(name: &str) -> PyResult<Vec<(String, u32, Option<u32>)>> {
    let module = module(name)?;
    skyhop_tcp::CALLER.accept(module).map_err(|error| input_error(&error.to_string()))?;
    let reports = skyhop_kernel::check(module).map_err(|error| from_kernel(&error))?;
    let row = |ProgramReport { name, instructions, verified }| (name, instructions, verified);
    Ok(reports.into_iter().map(row).collect())
}

fn module(name: &str) -> PyResult<&'static Module> {
    skyhop_kernel::module_of(name).map_err(|error| input_error(&error.to_string()))
}

pub(crate) fn from_kernel(error: &KernelError) -> PyErr {
    if error.is_input() { input_error(&error.to_string()) } else { run_error(&error.to_string()) }
}
