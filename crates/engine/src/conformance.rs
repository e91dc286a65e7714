//! Conformance suite of engines: their tests call [`check_engine`] with an experiment that they support.

use std::collections::BTreeMap;

use skyhop_app::AppKind as _;
use skyhop_experiment::{Experiment, FlowPlan};
use skyhop_model::{AppTable, Counts, Drops};
use skyhop_record::{AppDetail, AppRow, FileError, Piece, RunData, SCHEMA_VERSION, Sink};
use skyhop_units::{Duration, Instant};

use crate::{Control, Engine, run_in_memory};

/// Note of the experiment, which must become a warning of the run, without the number of the system error.
const NOTE: &str = "its path is made up: Operation not permitted (os error 1)";

/// Run an experiment to its end, run it again with an interruption, and check the results of both runs.
///
/// # Panics
/// The engine violates a requirement; the message says which.
pub fn check_engine(engine: &dyn Engine, experiment: &Experiment) {
    let experiment = &Experiment { notes: vec![NOTE.to_owned()], ..experiment.clone() };
    nothing_to_run_is_refused_by_its_key(engine, experiment);
    let whole = run_in_memory(engine, experiment).expect("the experiment can be run");
    says_what_it_is(engine, experiment, &whole);
    rows_are_in_order(&whole);
    rows_and_summary_agree(&whole);
    applications_have_rows_and_a_summary(experiment, &whole);
    an_interrupted_run_keeps_what_was_measured(engine, experiment);
    a_sink_that_refuses_ends_the_run(engine, experiment);
}

fn nothing_to_run_is_refused_by_its_key(engine: &dyn Engine, experiment: &Experiment) {
    let empty = Experiment { flows: Vec::new(), ..experiment.clone() };
    let refused = engine.check(&empty).expect_err("nothing to run is refused");
    assert_eq!(refused.key, "flow", "{refused}");
    assert!(run_in_memory(engine, &empty).expect_err("it does not run either").is_input());
}

fn says_what_it_is(engine: &dyn Engine, experiment: &Experiment, run: &RunData) {
    let links = experiment.links.len();
    assert_eq!(run.begin.engine, engine.name());
    assert_eq!((run.begin.schema, run.begin.links.len()), (SCHEMA_VERSION, links));
    assert_eq!((&run.summary.engine[..], run.summary.seed), (engine.name(), experiment.seed));
    assert_eq!(run.summary.virtual_s, experiment.duration.as_secs_f64());
    assert_eq!(run.run["engine"], engine.name());
    assert_eq!(run.run["interrupted"], false);
    assert_eq!(run.run["scenario"], experiment.scenario);
    let warning = skyhop_model::without_numbers(NOTE);
    assert!(!warning.contains("os error") && run.summary.warnings.contains(&warning), "{NOTE}");
}

fn rows_are_in_order(run: &RunData) {
    let flows: Vec<_> = run.flows.iter().map(|row| (row.t_ns, row.flow)).collect();
    assert!(flows.is_sorted() && !flows.is_empty(), "rows of flows by time, then flow");
    let links: Vec<_> = run.link.iter().map(|row| (row.t_ns, row.link, row.direction)).collect();
    assert!(links.is_sorted() && !links.is_empty(), "rows of links by time, link, direction");
    assert!(run.events.is_sorted_by_key(|row| row.t_ns), "events by time");
    assert!(run.probes.is_sorted_by_key(|row| (row.probe, row.seq)), "probes by number");
}

/// Check that sums over rows equal the totals in the summary.
fn rows_and_summary_agree(run: &RunData) {
    let mut drops: BTreeMap<u16, Drops> = BTreeMap::new();
    for row in &run.link {
        let sum = drops.entry(row.link).or_default();
        *sum = sum.plus(row.drops);
    }
    assert_eq!(drops[&0], run.summary.link.drops, "drops of the path's link");
    for flow in &run.summary.flows {
        let rows = run.flows.iter().filter(|row| row.flow == flow.id as i32);
        let retransmits: i64 = rows.map(|row| row.retransmits).sum();
        assert!(retransmits.unsigned_abs() <= flow.retransmits, "flow {}", flow.id);
    }
    for probe in &run.summary.probes {
        let rows: Vec<_> = run.probes.iter().filter(|row| row.probe == probe.id as i32).collect();
        let lost = rows.iter().filter(|row| row.rtt_ns.is_none()).count() as u64;
        assert_eq!((probe.sent, probe.lost), (rows.len() as u64, lost), "probe {}", probe.id);
    }
}

/// Check that each flow whose application has a table of results has rows and a summary, and that no other flow
/// has any.
fn applications_have_rows_and_a_summary(experiment: &Experiment, run: &RunData) {
    let mut summaries = run.summary.apps.iter();
    let mut expected: BTreeMap<AppTable, usize> = BTreeMap::new();
    for flow in &experiment.flows {
        let app = flow.traffic.app();
        let Some(table) = app.table() else { continue };
        let summary = summaries.next().expect("one entry per application, by flow");
        assert_eq!((summary.id, &summary.kind[..]), (flow.id, app.name()));
        let of_table = run.apps.get(&table).into_iter().flatten();
        let rows: Vec<_> = of_table.filter(|row| row.flow == flow.id as i32).collect();
        assert!(!rows.is_empty(), "{table} of flow {}", flow.id);
        *expected.entry(table).or_default() += rows.len();
        for (parts, rows) in &run.apps {
            let is_part = |row: &&AppRow| matches!(row.detail, AppDetail::Object { .. });
            let of_flow = rows.iter().filter(is_part).filter(|row| row.flow == flow.id as i32);
            let found = of_flow.count();
            if found > 0 {
                *expected.entry(*parts).or_default() += found;
            }
        }
        let completed = rows.iter().filter(|row| row.latency_ns.is_some()).count() as u64;
        let counts = (completed, rows.len() as u64 - completed);
        assert_eq!((summary.completed, summary.failed), counts, "{table} of flow {}", flow.id);
        assert_eq!(summary.latency_p50_us.is_some(), completed > 0, "flow {}", flow.id);
        transactions_are_in_order(flow, &rows);
    }
    assert_eq!(summaries.next(), None, "an entry of a flow without a table");
    let found: BTreeMap<_, _> = run.apps.iter().map(|(table, rows)| (*table, rows.len())).collect();
    assert_eq!(found, expected, "rows of flows that have no such application");
}

fn transactions_are_in_order(flow: &FlowPlan, rows: &[&AppRow]) {
    let ascending = rows.windows(2).all(|pair| pair[0].seq < pair[1].seq);
    assert!(ascending, "transactions of flow {} by number", flow.id);
    let lived = flow.start.as_nanos()..flow.stop.as_nanos();
    for row in rows {
        assert!(lived.contains(&row.t_ns.unsigned_abs()), "due in the flow's time: {row:?}");
        let times = [row.connect_ns, row.first_byte_ns, row.latency_ns];
        assert!(times.iter().flatten().is_sorted(), "connected, begun, done: {row:?}");
    }
}

/// Control that interrupts a run once half of its time is over.
struct InterruptHalfway {
    is_half_over: bool,
}

impl Control for InterruptHalfway {
    fn progress(&mut self, elapsed: Duration, total: Duration) {
        self.is_half_over = elapsed >= total / 2;
    }

    fn interrupted(&mut self) -> bool {
        self.is_half_over
    }
}

fn an_interrupted_run_keeps_what_was_measured(engine: &dyn Engine, experiment: &Experiment) {
    let mut run = RunData::default();
    let ended = engine
        .run(experiment, &mut run, &mut InterruptHalfway { is_half_over: false })
        .expect("an interrupted run is a run");
    let end = Instant::START + experiment.duration;
    assert!(ended.interrupted && ended.at < end, "{ended:?}");
    assert_eq!(run.run["interrupted"], true);
    assert_eq!(run.summary.virtual_s, ended.at.saturating_since(Instant::START).as_secs_f64());
    let last = run.link.last().map(|row| row.t_ns);
    assert!(last.is_some_and(|at| at <= ended.at.as_nanos() as i64), "{last:?} {ended:?}");
    assert!(run.events.iter().all(|row| row.t_ns <= ended.at.as_nanos() as i64));
}

/// Sink that refuses all pieces after the first, as a full disk does.
struct FullDisk;

impl Sink for FullDisk {
    fn write(&mut self, piece: Piece) -> Result<(), FileError> {
        match piece {
            Piece::Begin(_) => Ok(()),
            _ => Err(FileError::Stream { reason: "no space is left".to_owned() }),
        }
    }
}

fn a_sink_that_refuses_ends_the_run(engine: &dyn Engine, experiment: &Experiment) {
    let error = engine
        .run(experiment, &mut FullDisk, &mut crate::Unattended)
        .expect_err("what cannot be written is an error");
    assert!(error.to_string().contains("no space is left"), "{error}");
    assert!(!error.is_input(), "{error}");
}
