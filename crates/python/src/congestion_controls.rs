//! Congestion controls: the kernel's, and ours in it.

use pyo3::prelude::*;
use skyhop_kernel::{ProgramReport, Status};

use crate::errors::Fallible;

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
pub(crate) fn list_cc() -> Fallible<Vec<CongestionControl>> {
    let entries = skyhop_kernel::list()?;
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
pub(crate) fn load_cc(name: &str, parameters: Vec<(String, String)>) -> Fallible<(String, bool)> {
    let parameters: Vec<(&str, &str)> =
        parameters.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let loaded = skyhop_kernel::load(skyhop_kernel::module_of(name)?, &parameters)?;
    Ok((loaded.kernel_name, loaded.mounted_bpffs))
}

/// Unloads a module; returns its name in the kernel, and how many sockets use it still.
#[pyfunction]
pub(crate) fn unload_cc(name: &str) -> Fallible<(String, Option<u64>)> {
    let unloaded = skyhop_kernel::unload(name)?;
    Ok((unloaded.kernel_name, unloaded.sockets))
}

/// What the verifier says of each hook of a module: name, instructions, and how many it looked at. Refuses
/// what the simulator would not call, too.
#[pyfunction]
pub(crate) fn check_cc(name: &str) -> Fallible<Vec<(String, u32, Option<u32>)>> {
    let module = skyhop_kernel::module_of(name)?;
    skyhop_tcp::CALLER.accept(module)?;
    let reports = skyhop_kernel::check(module)?;
    let row = |ProgramReport { name, instructions, verified }| (name, instructions, verified);
    Ok(reports.into_iter().map(row).collect())
}
