//! Warnings about an experiment before it runs, common to all engines.

use std::collections::BTreeSet;

use skyhop_cc::Registry;
use skyhop_experiment::{Experiment, FlowPlan, Traffic, cc_parameters};
use skyhop_model::cc_label;
use skyhop_units::{Duration, Instant};

/// Warnings that a reader needs to know before trusting the results.
pub fn warnings(experiment: &Experiment) -> Vec<String> {
    let mut found = experiment.notes.clone();
    found.extend(short_path(experiment));
    found.extend(queue_of_longer_path(experiment));
    found.extend(unused_announcements(experiment));
    found
}

/// Warning if the path ends before the run.
fn short_path(experiment: &Experiment) -> Option<String> {
    let covered = Duration::from_nanos(experiment.path().header.duration_ns);
    (covered < experiment.duration).then(|| {
        let duration = experiment.duration;
        format!("the path covers {covered:.3} of the run's {duration:.3}; its last state is kept; [path] loop = true repeats a path file")
    })
}

/// Warning if a queue in BDP was computed from a path that is longer than the run, and whose mean base RTT over the run
/// differs by more than 10 %.
fn queue_of_longer_path(experiment: &Experiment) -> Option<String> {
    let (path, duration) = (experiment.path(), experiment.duration);
    let queues = &experiment.links.get(usize::from(experiment.path_link()))?.queues;
    let in_bdp = queues.iter().find(|queue| queue.base_rtt_us.is_some())?;
    let covered = Duration::from_nanos(path.header.period_ns.unwrap_or(path.header.duration_ns));
    let whole = path.whole_mean_base_rtt();
    let during = path.mean_base_rtt(Instant::START, Instant::START + duration);
    let differs = (during.as_secs_f64() - whole.as_secs_f64()).abs() > 0.1 * whole.as_secs_f64();
    (duration < covered && differs).then(|| {
        let ms = |rtt: Duration| format!("{:.1} ms", rtt.as_secs_f64() * 1e3);
        format!(
            "queue \"{}\" is that of the whole path of {covered:.3}, whose mean base RTT is {}; over the run of {duration:.3} \
             it is {}: give link.queue in bytes or packets for another",
            in_bdp.given,
            ms(whole),
            ms(during)
        )
    })
}

/// Warning about congestion controls that use announcements which do not reach them.
fn unused_announcements(experiment: &Experiment) -> Option<String> {
    let network = experiment.network.as_ref();
    let of_routes = network.is_some_and(|network| network.announced.is_some());
    let announces = !experiment.announcements.is_empty() || experiment.blind.is_some() || of_routes;
    let path = experiment.path_link();
    let reaches = |flow: &FlowPlan| announces && (network.is_some() || flow.crosses(path));
    let in_vain = experiment.flows.iter().filter(|flow| !reaches(flow));
    let in_vain = in_vain.filter(|flow| uses_announcements(flow));
    let names: BTreeSet<&str> = in_vain.filter_map(FlowPlan::cc).map(cc_label).collect();
    let source = experiment.scenario["signal"]["source"].as_str().unwrap_or("none");
    let why = match (announces, source) {
        (true, _) => {
            "announcements are about the link of [path], which it does not cross".to_owned()
        }
        (false, "none") => {
            format!("[signal] source = \"none\"; add {}", what_to_type(experiment))
        }
        (false, source) => finds_none(source),
    };
    (!names.is_empty()).then(|| no_announcements(&names, &why))
}

/// Warning that these congestion controls get no announcements, though they use some.
pub fn no_announcements(names: &BTreeSet<&str>, why: &str) -> String {
    let names = names.iter().copied().collect::<Vec<_>>().join(" and ");
    format!("{names}: gets no handover announcements: {why}")
}

/// Whether the congestion control of a flow uses announcements of handovers.
pub fn uses_announcements(flow: &FlowPlan) -> bool {
    let Traffic::Tcp { cc, parameters, .. } = &flow.traffic else { return false };
    let given = cc_parameters(cc, parameters);
    let given: Vec<(&str, &str)> =
        given.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    Registry::global().announcements(cc, &given).are_used
}

/// Reason for which a source of announcements has made none.
pub fn finds_none(source: &str) -> String {
    format!("[signal] source = \"{source}\" finds none during the run")
}

/// Options of the command line with which handovers are announced.
fn what_to_type(experiment: &Experiment) -> String {
    let has_handovers = experiment.path().events().next().is_some()
        || !experiment.changes.is_empty()
        || experiment.network.as_ref().is_some_and(|network| network.request.every.is_some());
    let source = if has_handovers { "path" } else { "schedule" };
    let lead = experiment.scenario["signal"]["lead"].as_str().unwrap_or("0 s");
    format!("--set signal.source={source} --set signal.lead='{lead}'")
}
