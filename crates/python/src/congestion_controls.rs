//! Congestion controls: the kernel's, and ours in it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use skyhop_kernel::{ProgramReport, Status};

use crate::errors::{Fallible, input_error};
use crate::python_cc::take_failure;

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
                Status::Program => ("held by a program", Some(None)),
                Status::Loaded(module) => ("loaded", Some(module)),
                Status::Run(module) => ("held by a live run", Some(module)),
                Status::Module(module) => ("not loaded", Some(Some(module))),
            };
            let (unknown, source) = match module {
                None => ("the kernel's own", "this machine's kernel".to_owned()),
                Some(None) if entry.status == Status::Program => {
                    ("such as skyhop policy serve", "a program of this machine".to_owned())
                }
                Some(None) => ("loaded from a file", "a file of its user's".to_owned()),
                Some(Some(module)) => ("", format!("cc/{module}.c")),
            };
            CongestionControl {
                name: entry.name,
                place,
                sockets: entry.sockets,
                description: entry.about.unwrap_or(unknown).to_owned(),
                source,
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
pub(crate) fn check_cc(name: &str) -> Fallible<Vec<Report>> {
    let module = skyhop_kernel::module_of(name)?;
    skyhop_tcp::CALLER.accept(module)?;
    let reports = skyhop_kernel::check(module)?;
    Ok(reports.into_iter().map(report).collect())
}

/// A hook: its name, its instructions, and how many of them the verifier looked at.
type Report = (String, u32, Option<u32>);

fn report(report: ProgramReport) -> Report {
    (report.name, report.instructions, report.verified)
}

/// Compiles a file in C for the simulator, and refuses what Linux or the simulator would not call. Returns what the
/// compiler had to say though it did it.
#[pyfunction]
pub(crate) fn load_cc_file(py: Python<'_>, file: &str) -> Fallible<String> {
    let loaded = py.detach(|| skyhop_ccfile::load(Path::new(file)))?;
    skyhop_tcp::CALLER.accept(loaded.module)?;
    skyhop_kernel::CALLER.accept(loaded.module)?;
    Ok(loaded.compiled.messages)
}

/// The cards of policies that come with skyhop: name and text of each.
#[pyfunction]
pub(crate) fn policy_cards() -> Vec<(&'static str, &'static str)> {
    skyhop_ccfile::policy_cards()
}

/// The network of one of them, where it has its weights.
#[pyfunction]
pub(crate) fn policy_network(name: &str) -> Option<&'static [u8]> {
    skyhop_ccfile::policy_network(name)
}

/// Reads a card and its network, and refuses what no flow could use. Returns title, the names of its features, the number
/// of its steps, and the SHA-256 of its files by their whole names.
#[pyfunction]
pub(crate) fn check_policy(py: Python<'_>, file: &str) -> Fallible<CheckedPolicy> {
    let loaded = py.detach(|| skyhop_ccfile::load_policy(&skyhop_ccfile::card_of(file)))?;
    let card = &loaded.policy.card;
    let names = card.observation.features.iter().map(|feature| feature.name.clone()).collect();
    let digests = loaded.sources.digests().clone();
    Ok((card.title.clone(), names, card.observation.steps, digests))
}

/// What the network of a card says to observations, one behind another, as the simulator and the kernel's side ask it: a
/// recurrent one remembers from one to the next. `None`: no decision.
#[pyfunction]
pub(crate) fn ask_policy(
    py: Python<'_>,
    file: &str,
    seen: Vec<Vec<f32>>,
) -> Fallible<Vec<Option<f64>>> {
    let loaded = py.detach(|| skyhop_ccfile::load_policy(&skyhop_ccfile::card_of(file)))?;
    let expected = loaded.policy.card.inputs();
    if let Some(row) = seen.iter().find(|row| row.len() != expected) {
        let given = row.len();
        let what = format!("{file}: its network sees {expected} numbers at once, not {given}");
        return Err(input_error(&what));
    }
    let (said, failure) = py.detach(|| (loaded.policy.say(&seen), take_failure()));
    failure.map(|_| said)
}

type CheckedPolicy = (String, Vec<String>, usize, BTreeMap<String, String>);

/// Has this kernel's verifier look at a file in C: why it could not be asked on this machine, or the hooks as
/// [`check_cc`] returns them.
#[pyfunction]
pub(crate) fn check_cc_file(py: Python<'_>, file: &str) -> Fallible<(Option<String>, Vec<Report>)> {
    let checked = py.detach(|| {
        let module = skyhop_kernel::module_of(file)?;
        // What this user may not load is compiled all the same.
        skyhop_ccfile::bpf_objects(module)?;
        skyhop_kernel::check(module)
    });
    match checked {
        Ok(reports) => Ok((None, reports.into_iter().map(report).collect())),
        Err(error) if error.missing().is_some() => Ok((Some(error.to_string()), Vec::new())),
        Err(error) => Err(error.into()),
    }
}

/// What the kernel's own build is to compile of a congestion control in C, one of skyhop's own or a file of the user's: the
/// module's name, what messages call it, the text, and a digest of all of it with skyhop's headers. Nothing where it is
/// neither.
#[pyfunction]
pub(crate) fn kernel_module_source(py: Python<'_>, cc: &str) -> Fallible<Option<ModuleSource>> {
    Ok(py
        .detach(|| skyhop_ccfile::kernel_module_source(cc))?
        .map(|source| (source.name, source.origin, source.text, source.digest)))
}

/// Name, origin, text, digest.
type ModuleSource = (String, String, String, String);

/// Where skyhop's headers are for editors; nothing where nothing can be kept.
#[pyfunction]
pub(crate) fn cc_headers() -> Fallible<Option<PathBuf>> {
    Ok(skyhop_ccfile::headers_directory()?)
}

/// skyhop's own congestion controls in C: name and text of each.
#[pyfunction]
pub(crate) fn own_cc() -> Vec<(&'static str, &'static str)> {
    let text = |name| Some((name, skyhop_ccfile::example(name)?));
    skyhop_ccfile::examples().into_iter().filter_map(text).collect()
}
