//! What to know of a run before it begins, whichever engine runs it.

use std::collections::BTreeSet;

use skyhop_cc::Module;
use skyhop_experiment::{Experiment, Traffic, cc_parameters};
use skyhop_model::cc_label;
use skyhop_units::Duration;

/// What a reader has to know before believing what comes of the experiment.
pub fn warnings(experiment: &Experiment) -> Vec<String> {
    let mut found = experiment.notes.clone();
    found.extend(short_path(experiment));
    found.extend(unheard(experiment));
    found
}

/// A path that ends before the run.
fn short_path(experiment: &Experiment) -> Option<String> {
    let covered = Duration::from_nanos(experiment.path().header.duration_ns);
    (covered < experiment.duration).then(|| {
        let duration = experiment.duration;
        format!("the path covers {covered} of the run's {duration}; its last state was kept; [path] loop = true repeats a path file")
    })
}

/// Whether a module looks at announcements, with this `source` given: one that goes by its own schedule does not.
fn waits(module: &Module, source: Option<&str>) -> bool {
    let own = module.params().find(|param| param.name == "source").is_some_and(|param| {
        source.map_or_else(|| param.text_of(param.initial), ToOwned::to_owned) == "own"
    });
    module.hears_handovers() && !own
}

/// Congestion controls that look at announcements, where none reaches them.
fn unheard(experiment: &Experiment) -> Option<String> {
    let announces = !experiment.announcements.is_empty() || experiment.blind.is_some();
    let path = experiment.path_link();
    let in_vain = experiment.flows.iter().filter(|flow| !announces || !flow.crosses(path));
    let names: BTreeSet<&str> = in_vain
        .filter_map(|flow| match &flow.traffic {
            Traffic::Tcp { cc, parameters, .. } => {
                let given = cc_parameters(cc, parameters).into_iter();
                let source =
                    given.filter(|(name, _)| name == "source").map(|(_, text)| text).next();
                let module = Module::find(cc).ok()?;
                waits(module, source.as_deref()).then_some(cc.as_str())
            }
            Traffic::Udp { .. } => None,
        })
        .map(cc_label)
        .collect();
    let source = experiment.scenario["signal"]["source"].as_str().unwrap_or("none");
    let why = match (announces, source) {
        (true, _) => "announcements are about the link of [path], which it does not cross".to_owned(),
        (false, "none") => {
            "[signal] source = \"none\"; \"path\", \"schedule\", \"forecast\" and \"blind\" announce".to_owned()
        }
        (false, source) => format!("[signal] source = \"{source}\" finds none during the run"),
    };
    (!names.is_empty()).then(|| {
        let names = names.into_iter().collect::<Vec<_>>().join(" and ");
        format!("{names}: told of no handover: {why}")
    })
}
