//! Python bindings for the congestion controls of the kernel, of skyhop and of users.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use skyhop_kernel::{ProgramReport, Status};

use crate::errors::{Fallible, input_error};
use crate::python_cc::take_failure;

/// Congestion control of the list that `list_cc` returns.
#[pyclass(frozen, get_all)]
pub(crate) struct CongestionControl {
    name: String,
    place: &'static str,
    sockets: Option<u64>,
    description: String,
    source: String,
}

/// List the congestion controls: the kernel's, and skyhop's loaded and unloaded modules.
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

/// Parameter of a congestion control: name, default, unit (or the names it may take), least, most, description.
type Parameter = (String, String, String, String, String, String);

/// Return the name, the description and the parameters of a congestion control that a user names, or of a user's file.
#[pyfunction]
pub(crate) fn cc_parameters(name: &str) -> Fallible<(String, String, Vec<Parameter>)> {
    let module = skyhop_kernel::module_of(name)?;
    let rows = module.params().map(|param| {
        let text = |internal: i64| {
            let text = param.text_of(internal);
            if param.scale == 1 {
                return text;
            }
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        };
        let bounds = [param.initial, param.least, param.most].map(text);
        let [initial, least, most] = bounds;
        (param.name.to_owned(), initial, param.unit.to_owned(), least, most, param.about.to_owned())
    });
    Ok((module.name().to_owned(), module.about().to_owned(), rows.collect()))
}

/// Load a module. Return its name in the kernel, and whether the BPF file system was mounted for it.
#[pyfunction]
pub(crate) fn load_cc(name: &str, parameters: Vec<(String, String)>) -> Fallible<(String, bool)> {
    let parameters: Vec<(&str, &str)> =
        parameters.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let loaded = skyhop_kernel::load(skyhop_kernel::module_of(name)?, &parameters)?;
    Ok((loaded.kernel_name, loaded.mounted_bpffs))
}

/// Unload a module. Return its name in the kernel, and the number of sockets that still use it.
#[pyfunction]
pub(crate) fn unload_cc(name: &str) -> Fallible<(String, Option<u64>)> {
    let unloaded = skyhop_kernel::unload(name)?;
    Ok((unloaded.kernel_name, unloaded.sockets))
}

/// Run the kernel's verifier on a module. Return for each hook its name, its number of instructions, and the number that
/// the verifier processed. Hooks that the simulator would not call are errors too.
#[pyfunction]
pub(crate) fn check_cc(name: &str) -> Fallible<Vec<Report>> {
    let module = skyhop_kernel::module_of(name)?;
    skyhop_tcp::CALLER.accept(module)?;
    let reports = skyhop_kernel::check(module)?;
    Ok(reports.into_iter().map(report).collect())
}

/// Report about a hook: name, number of instructions, and number of instructions that the verifier processed.
type Report = (String, u32, Option<u32>);

fn report(report: ProgramReport) -> Report {
    (report.name, report.instructions, report.verified)
}

/// Compile a C file for the simulator. Return the compiler's warnings. Hooks that Linux or the simulator would not call
/// are errors.
#[pyfunction]
pub(crate) fn load_cc_file(py: Python<'_>, file: &str) -> Fallible<String> {
    let loaded = py.detach(|| skyhop_ccfile::load(Path::new(file)))?;
    skyhop_tcp::CALLER.accept(loaded.module)?;
    skyhop_kernel::CALLER.accept(loaded.module)?;
    Ok(loaded.compiled.messages)
}

/// List the policy cards that come with skyhop. Return the name and the text of each card.
#[pyfunction]
pub(crate) fn policy_cards() -> Vec<(&'static str, &'static str)> {
    skyhop_ccfile::policy_cards()
}

/// Network file of a card that comes with skyhop; None if its weights do not come with it.
#[pyfunction]
pub(crate) fn policy_network(name: &str) -> Option<&'static [u8]> {
    skyhop_ccfile::policy_network(name)
}

/// Check a card and its network. Return the card's title, the names of its features, the number of its steps, and the
/// SHA-256 of the files by absolute path.
#[pyfunction]
pub(crate) fn check_policy(py: Python<'_>, file: &str) -> Fallible<CheckedPolicy> {
    let loaded = py.detach(|| skyhop_ccfile::load_policy(&skyhop_ccfile::card_path(file)))?;
    let card = &loaded.policy.card;
    let names = card.observation.features.iter().map(|feature| feature.name.clone()).collect();
    let digests = loaded.sources.digests().clone();
    Ok((card.title.clone(), names, card.observation.steps, digests))
}

/// Run the network of a card on a sequence of observations, as the simulator and the policy service do: a recurrent
/// network keeps its state from one observation to the next. Return an output per observation; None means no
/// decision.
#[pyfunction]
pub(crate) fn ask_policy(
    py: Python<'_>,
    file: &str,
    observations: Vec<Vec<f32>>,
) -> Fallible<Vec<Option<f64>>> {
    let loaded = py.detach(|| skyhop_ccfile::load_policy(&skyhop_ccfile::card_path(file)))?;
    let expected = loaded.policy.card.inputs();
    if let Some(row) = observations.iter().find(|row| row.len() != expected) {
        let given = row.len();
        let what =
            format!("{file}: its network takes {expected} numbers per observation, not {given}");
        return Err(input_error(&what));
    }
    let (outputs, failure) =
        py.detach(|| (loaded.policy.outputs_of(&observations), take_failure()));
    failure.map(|_| outputs)
}

type CheckedPolicy = (String, Vec<String>, usize, BTreeMap<String, String>);

/// Run this kernel's verifier on a C file. Return the reason why the verifier cannot run on this machine, or None, and
/// the hooks as `check_cc` returns them.
#[pyfunction]
pub(crate) fn check_cc_file(py: Python<'_>, file: &str) -> Fallible<(Option<String>, Vec<Report>)> {
    let checked = py.detach(|| {
        let module = skyhop_kernel::module_of(file)?;
        // Compile the file even if this user may not load it.
        skyhop_ccfile::bpf_objects(module)?;
        skyhop_kernel::check(module)
    });
    match checked {
        Ok(reports) => Ok((None, reports.into_iter().map(report).collect())),
        Err(error) if error.missing().is_some() => Ok((Some(error.to_string()), Vec::new())),
        Err(error) => Err(error.into()),
    }
}

/// Return the source from which a congestion control in C, skyhop's or a user's, is built as a kernel module: the
/// module's name, the file name for messages, the text, and a digest that includes skyhop's headers. None if `cc` is
/// not such a congestion control.
#[pyfunction]
pub(crate) fn kernel_module_source(py: Python<'_>, cc: &str) -> Fallible<Option<ModuleSource>> {
    Ok(py
        .detach(|| skyhop_ccfile::kernel_module_source(cc))?
        .map(|source| (source.name, source.origin, source.text, source.digest)))
}

/// Source of a kernel module: name, origin, text, digest.
type ModuleSource = (String, String, String, String);

/// Directory of skyhop's headers, for editors; None if the cache cannot be written.
#[pyfunction]
pub(crate) fn cc_headers() -> Fallible<Option<PathBuf>> {
    Ok(skyhop_ccfile::headers_directory()?)
}

/// List skyhop's own congestion controls in C. Return the name and the text of each.
#[pyfunction]
pub(crate) fn own_cc() -> Vec<(&'static str, &'static str)> {
    let text = |name| Some((name, skyhop_ccfile::example(name)?));
    skyhop_ccfile::examples().into_iter().filter_map(text).collect()
}
