//! Measurements of the Linux stack in tests/linux, whose README describes how they were made.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;

const LINUX_OWN: [&str; 5] = ["reno", "cubic", "bbr", "hybla", "vegas"];
const SUMMARY: &str = include_str!("../../../tests/linux/summary.json");
const DRAWS: &str = include_str!("../../../tests/linux/draws.json");
const SHORT: &str = include_str!("../../../tests/linux/short.json");

/// Ticks per second of the kernel that was measured.
pub const HZ: u32 = 100;
/// Version of that kernel, by the name of skyhop's TCP profile.
pub const PROFILE: &str = "linux-6.12";

/// Conditions of a run and its results.
#[derive(Debug, Clone, Deserialize)]
#[expect(missing_docs, reason = "names with units say what fields are")]
pub struct Scenario {
    #[serde(skip)]
    pub name: String,
    /// Rate with Ethernet headers counted.
    pub rate_kbps: u64,
    pub queue_bytes: u64,
    pub one_way_us: u64,
    /// Random loss of packets to the server.
    #[serde(default)]
    pub loss_percent: f64,
    /// Arguments of tc for a queue other than the FIFO.
    pub aqm: Option<String>,
    /// Command that was executed before the run, such as setting a module's parameter.
    pub before: Option<String>,
    /// Whether both hosts use ECN.
    #[serde(default)]
    pub ecn: bool,
    /// Number of CE marks that both flows received.
    #[serde(default)]
    pub ecn_marks: f64,
    /// Flows in the order of their starts.
    #[serde(default)]
    pub flows: Vec<Flow>,
    /// Results of all repetitions; the last is that of `flows`.
    #[serde(default)]
    pub draws: Vec<Vec<Flow>>,
}

/// Size of a full packet with its Ethernet header.
const PACKET_BYTES: u64 = 1514;

impl Scenario {
    fn with_link_conditions(mut self) -> Self {
        let queue_bytes = self.queue_bytes;
        remove_token_bucket(self.rate_kbps, &mut self.one_way_us, &mut self.queue_bytes);
        if self.aqm.is_some() {
            self.queue_bytes = queue_bytes;
        }
        self
    }

    /// Whether all congestion controls are the kernel's own; for others skyhop has interpretations of its own.
    pub fn is_linux_own(&self) -> bool {
        self.flows.iter().all(|flow| LINUX_OWN.contains(&flow.cc.as_str()))
    }
}

/// Convert the conditions of a token bucket to those of a link that sends one packet after the other. The token
/// bucket lets the first packet of an idle link pass at once, and counts the packet that waits for tokens in its
/// FIFO.
fn remove_token_bucket(rate_kbps: u64, one_way_us: &mut u64, queue_bytes: &mut u64) {
    *one_way_us -= PACKET_BYTES * 8000 / rate_kbps / 2;
    *queue_bytes -= PACKET_BYTES;
}

/// Results of one flow.
#[derive(Debug, Clone, Deserialize)]
#[expect(missing_docs, reason = "names with units say what fields are")]
pub struct Flow {
    pub cc: String,
    pub start_s: f64,
    pub seconds: f64,
    /// Goodput at the receiver.
    pub goodput_bps: f64,
    pub retransmits: f64,
    pub srtt_mean_us: f64,
    pub cwnd_mean_packets: f64,
}

/// All scenarios, in the order of their names.
pub fn scenarios() -> Vec<Scenario> {
    let read = |text| -> BTreeMap<String, Scenario> {
        serde_json::from_str(text).expect("tests/linux holds scenarios")
    };
    let mut all = read(SUMMARY);
    for (name, drawn) in read(DRAWS) {
        let draws = drawn.draws.clone();
        all.entry(name).or_insert(Scenario { draws: Vec::new(), ..drawn }).draws = draws;
    }
    let named = |(name, mut scenario): (String, Scenario)| {
        if scenario.flows.is_empty() {
            scenario.flows = scenario.draws.last().cloned().unwrap_or_default();
        } else {
            scenario.draws.push(scenario.flows.clone());
        }
        Scenario { name, ..scenario }
    };
    all.into_iter().map(named).map(Scenario::with_link_conditions).collect()
}

/// Number of retransmitted segments of a scenario's flow, per tenth of a second since its connection was established.
pub fn retransmits(name: &str, flow: usize) -> Vec<u32> {
    let series = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/linux/series");
    let text = fs::read_to_string(series.join(format!("{name}.flow{flow}.csv")));
    let text = text.expect("every flow of the summary has a series");
    let last = |line: &str| line.rsplit(',').next().and_then(|last| last.parse().ok());
    text.lines().skip(1).map(|line| last(line).unwrap_or(0)).collect()
}

/// Short transfers over new connections, and short answers over an open one.
#[derive(Debug, Deserialize)]
#[expect(missing_docs, reason = "names with units say what fields are")]
pub struct Short {
    pub rate_kbps: u64,
    pub queue_bytes: u64,
    pub one_way_us: u64,
    pub cc: String,
    /// Transfers; the first one waited for ARP.
    #[serde(default)]
    pub connections: Vec<Transfer>,
    /// Times of the answers, by the gap before each.
    #[serde(default)]
    pub response_s_by_gap_s: BTreeMap<String, Vec<f64>>,
}

/// A transfer over a connection of its own, with times since connect().
#[derive(Debug, Deserialize)]
#[expect(missing_docs, reason = "names with units say what fields are")]
pub struct Transfer {
    pub bytes: u64,
    pub connect_s: f64,
    /// Time at which the server has read all.
    pub received_s: f64,
    /// Time at which the client has the answer.
    pub replied_s: f64,
}

/// Measurements of short transfers and of answers.
pub fn short() -> Vec<Short> {
    let all: BTreeMap<String, Short> =
        serde_json::from_str(SHORT).expect("tests/linux/short.json holds transfers and answers");
    let as_link = |mut short: Short| {
        remove_token_bucket(short.rate_kbps, &mut short.one_way_us, &mut short.queue_bytes);
        short
    };
    all.into_values().map(as_link).collect()
}
