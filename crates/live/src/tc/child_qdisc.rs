//! Child queue discipline of tbf, with the netlink attributes of linux/pkt_sched.h.

use std::num::NonZeroU32;

use skyhop_engine::Unsupported;
use skyhop_host::tc::{TcOptions, TcQdisc, bytes_per_second};
use skyhop_link::{
    AckFilter, CakeConfig, CodelConfig, Diffserv, FifoConfig, FifoDrop, FqCodelConfig, FqConfig,
    FqPieConfig, Isolation, Limit, LinkConfig, PieConfig, QueueDiscipline, RedConfig, SfqConfig,
};
use skyhop_units::{Bytes, Duration, Rate};

/// Build the child queue discipline of tbf for a link's queue.
///
/// # Errors
/// Linux has no discipline with the same behaviour; the error names the key.
pub(super) fn child(config: &LinkConfig) -> Result<TcQdisc, Unsupported> {
    let queue = Queue { limit: config.queue, name: name_in_linux(&config.qdisc) };
    let attributes = match &config.qdisc {
        QueueDiscipline::Fifo(fifo) => return fifo_options(fifo, &queue),
        QueueDiscipline::Sfq(sfq) => return sfq_options(sfq, queue.packets()?),
        QueueDiscipline::Codel(codel) => codel_attributes(codel, queue.packets()?),
        QueueDiscipline::FqCodel(codel) => fq_codel_attributes(codel, queue.packets()?),
        QueueDiscipline::Pie(pie) => Ok(pie_attributes(pie, queue.packets()?)),
        QueueDiscipline::FqPie(pie) => fq_pie_attributes(pie, queue.packets()?),
        QueueDiscipline::Fq(fq) => fq_attributes(fq, queue.packets()?),
        QueueDiscipline::Red(red) => red_attributes(red, queue.bytes()?),
        QueueDiscipline::Cake(cake) => cake_attributes(cake, config.queue),
        QueueDiscipline::ThresholdDrop(_) => {
            Err(Unsupported::new("link.qdisc", "Linux has no such discipline"))
        }
    }?;
    Ok(TcQdisc::Other { name: queue.name, options: TcOptions::Attributes(attributes) })
}

/// Name of the discipline in tc(8), for those with one that counts in a single unit.
fn name_in_linux(qdisc: &QueueDiscipline) -> &'static str {
    match qdisc {
        QueueDiscipline::Fifo(FifoConfig { drop: FifoDrop::Front, .. }) => "pfifo_head_drop",
        _ => qdisc.name(),
    }
}

/// Whether the discipline may mark ECN-capable packets.
pub(super) fn marks(qdisc: &QueueDiscipline) -> bool {
    match qdisc {
        QueueDiscipline::Codel(codel) => codel.ecn || codel.ce_threshold.is_some(),
        QueueDiscipline::FqCodel(codel) => codel.ecn || codel.ce_threshold.is_some(),
        QueueDiscipline::Pie(pie) => pie.ecn,
        QueueDiscipline::FqPie(pie) => pie.ecn,
        QueueDiscipline::Red(red) => red.ecn,
        QueueDiscipline::Fq(fq) => fq.ce_threshold.is_some(),
        QueueDiscipline::Cake(_) => true,
        QueueDiscipline::Fifo(_) | QueueDiscipline::Sfq(_) | QueueDiscipline::ThresholdDrop(_) => {
            false
        }
    }
}

type Attributes = Vec<(u16, Vec<u8>)>;

/// Encode attributes of 32 bits, in host byte order.
fn numbers<const N: usize>(attributes: [(u16, u32); N]) -> Attributes {
    attributes.map(|(kind, value)| (kind, value.to_ne_bytes().to_vec())).into()
}

/// Limit of a link's queue, and the name of its discipline for errors.
struct Queue {
    limit: Limit,
    name: &'static str,
}

impl Queue {
    fn packets(&self) -> Result<u32, Unsupported> {
        match self.limit {
            Limit::Packets(packets) => number("link.queue", packets),
            Limit::Bytes(_) => Err(self.wrong_unit("packets")),
        }
    }

    fn bytes(&self) -> Result<u32, Unsupported> {
        match self.limit {
            Limit::Bytes(bytes) => number("link.queue", bytes.as_u64()),
            Limit::Packets(_) => Err(self.wrong_unit("bytes")),
        }
    }

    fn wrong_unit(&self, unit: &str) -> Unsupported {
        let what = format!("Linux's {} counts {unit}; give the limit in {unit}", self.name);
        Unsupported::new("link.queue", what)
    }
}

fn number(key: &str, number: u64) -> Result<u32, Unsupported> {
    u32::try_from(number).map_err(|_| Unsupported::new(key, "it is larger than Linux allows"))
}

fn micros(key: &str, duration: Duration) -> Result<u32, Unsupported> {
    number(key, duration.as_micros())
}

/// Duration in microseconds, at least 1.
fn us(duration: Duration) -> u32 {
    u32::try_from(duration.as_micros()).unwrap_or(u32::MAX).max(1)
}

/// Check a DRR quantum, in bytes: Linux silently raises a quantum below its minimum, and refuses
/// one above its maximum.
fn quantum(quantum: Bytes) -> Result<u32, Unsupported> {
    match quantum.as_u64() {
        bytes @ 256..=0x10_0000 => Ok(bytes as u32),
        _ => Err(Unsupported::new("link.qdisc.quantum", "Linux allows 256 B to 1 MiB")),
    }
}

fn fifo_options(fifo: &FifoConfig, queue: &Queue) -> Result<TcQdisc, Unsupported> {
    if fifo.max_sojourn.is_some() {
        let what = "Linux's pfifo_head_drop has no limit of the time in the queue";
        return Err(Unsupported::new("link.qdisc.max_sojourn", what));
    }
    Ok(match (fifo.drop, queue.limit) {
        (FifoDrop::Front, _) => TcQdisc::PfifoHeadDrop { limit: queue.packets()? },
        (FifoDrop::Tail, Limit::Bytes(_)) => TcQdisc::Bfifo { limit: queue.bytes()? },
        (FifoDrop::Tail, Limit::Packets(_)) => TcQdisc::Pfifo { limit: queue.packets()? },
    })
}

fn codel_attributes(codel: &CodelConfig, limit: u32) -> Result<Attributes, Unsupported> {
    let target_limit_interval_ecn =
        [(1, us(codel.target)), (2, limit), (3, us(codel.interval)), (4, codel.ecn.into())];
    let mut attributes = numbers(target_limit_interval_ecn);
    attributes.extend(ce_threshold(5, codel.ce_threshold)?);
    Ok(attributes)
}

/// Attribute of the sojourn time above which packets are marked (`CE_THRESHOLD`), if one is set.
fn ce_threshold(kind: u16, threshold: Option<Duration>) -> Result<Attributes, Unsupported> {
    let Some(threshold) = threshold else { return Ok(Vec::new()) };
    Ok(numbers([(kind, micros("link.qdisc.ce_threshold", threshold)?)]))
}

fn fq_codel_attributes(codel: &FqCodelConfig, limit: u32) -> Result<Attributes, Unsupported> {
    let mut attributes = numbers([
        (1, us(codel.target)),
        (2, limit),
        (3, us(codel.interval)),
        (4, codel.ecn.into()),
        (5, queues(codel.flows)?),
        (6, quantum(codel.quantum)?),
        (8, codel.drop_batch.get()),
        (9, number("link.qdisc.memory", codel.memory.as_u64())?),
    ]);
    attributes.extend(ce_threshold(7, codel.ce_threshold)?);
    Ok(attributes)
}

fn queues(flows: NonZeroU32) -> Result<u32, Unsupported> {
    match flows.get() {
        flows @ ..=65_536 => Ok(flows),
        _ => Err(Unsupported::new("link.qdisc.flows", "Linux allows at most 65,536")),
    }
}

fn pie_attributes(pie: &PieConfig, limit: u32) -> Attributes {
    numbers([
        (1, us(pie.target)),
        (2, limit),
        (3, us(pie.tupdate)),
        (4, pie.alpha),
        (5, pie.beta),
        (6, pie.ecn.into()),
        (7, pie.bytemode.into()),
        (8, pie.dq_rate_estimator.into()),
    ])
}

fn fq_pie_attributes(pie: &FqPieConfig, limit: u32) -> Result<Attributes, Unsupported> {
    let percent = pie.ecn_prob.fraction() * 100.0;
    if (percent - percent.round()).abs() > 1e-9 {
        return Err(Unsupported::new("link.qdisc.ecn_prob", "Linux allows whole percents only"));
    }
    Ok(numbers([
        (1, limit),
        (2, queues(pie.flows)?),
        (3, us(pie.target)),
        (4, us(pie.tupdate)),
        (5, pie.alpha),
        (6, pie.beta),
        (7, quantum(pie.quantum)?),
        (9, percent.round() as u32),
        (10, pie.ecn.into()),
        (11, pie.bytemode.into()),
        (12, pie.dq_rate_estimator.into()),
    ]))
}

/// Options of sfq: `struct tc_sfq_qopt_v1` of linux/pkt_sched.h.
fn sfq_options(sfq: &SfqConfig, queue: u32) -> Result<TcQdisc, Unsupported> {
    let not = |key: &str, what: &str| Err(Unsupported::new(key, what));
    let perturb_s = sfq.perturb.as_nanos() / 1_000_000_000;
    if Duration::from_secs(perturb_s) != sfq.perturb {
        return not("link.qdisc.perturb", "Linux allows whole seconds only");
    }
    if sfq.depth.get() > 127 {
        return not("link.qdisc.depth", "Linux allows at most 127 packets");
    }
    if sfq.flows.get() > 65_408 || sfq.divisor.get() > 65_536 {
        return not("link.qdisc.flows", "Linux allows at most 65,408 flows and 65,536 hash values");
    }
    let limit = sfq.limit.get().min(queue);
    if limit == 1 {
        return not("link.qdisc.limit", "Linux refuses a limit of one packet");
    }
    let (perturb, headdrop) = (number("link.qdisc.perturb", perturb_s)?, sfq.headdrop.into());
    let mut structure = vec![quantum(sfq.quantum)?, perturb, limit, sfq.divisor.get()];
    structure.extend([sfq.flows.get(), sfq.depth.get(), headdrop]);
    // The rest of the structure: RED parameters, which are off, and statistics.
    structure.extend([0; 11]);
    Ok(TcQdisc::Other { name: "sfq", options: TcOptions::Structure(structure) })
}

/// Priority map of fq that puts all packets into one band, whatever their DSCP: `struct tc_prio_qopt`.
const ONE_BAND: [u8; 20] = {
    let mut map = [1; 20];
    let bands = 3_i32.to_ne_bytes();
    let mut at = 0;
    while at < bands.len() {
        map[at] = bands[at];
        at += 1;
    }
    map
};

/// Attributes of fq. Packets forwarded by a router have no socket, so that fq hashes their headers.
fn fq_attributes(fq: &FqConfig, limit: u32) -> Result<Attributes, Unsupported> {
    let rate = |key: &str, rate: Rate| number(key, bytes_per_second(rate));
    let initial = number("link.qdisc.initial_quantum", fq.initial_quantum.as_u64())?;
    if initial > 1 << 20 {
        return Err(Unsupported::new("link.qdisc.initial_quantum", "Linux allows at most 1 MiB"));
    }
    let most = fq.maxrate.map_or(Ok(u32::MAX), |most| rate("link.qdisc.maxrate", most))?;
    let mut attributes = numbers([
        (1, limit),
        (2, fq.flow_limit.get()),
        (3, quantum(fq.quantum)?),
        (4, initial),
        (7, most),
        (9, micros("link.qdisc.refill_delay", fq.refill_delay)?),
        (10, fq.flows.get() - 1),
        (11, rate("link.qdisc.low_rate_threshold", fq.low_rate_threshold)?),
    ]);
    attributes.extend(ce_threshold(12, fq.ce_threshold)?);
    attributes.push((16, ONE_BAND.to_vec()));
    Ok(attributes)
}

/// Attributes of red: `struct tc_red_qopt`, the table for idle times, and the probability in units of 2^-32.
fn red_attributes(red: &RedConfig, limit: u32) -> Result<Attributes, Unsupported> {
    let not = |key: &str, what: &str| Err(Unsupported::new(key, what));
    if red.bandwidth > Rate::ZERO {
        let what = "below a token bucket Linux's red does not notice an empty queue; set it to 0";
        return not("link.qdisc.bandwidth", what);
    }
    if red.probability.fraction() <= 0.0 {
        return not("link.qdisc.probability", "Linux's red replaces zero with a default");
    }
    let thresholds = red.thresholds(Bytes::new(limit.into()));
    let (min, max) = (thresholds.min.as_u64(), thresholds.max.as_u64());
    if max.checked_shl(thresholds.weight_log.into()).is_none_or(|scaled| scaled >= 1 << 31) {
        return not(
            "link.qdisc.max",
            "with this averaging weight it is larger than Linux's red allows",
        );
    }
    let flags = u8::from(red.ecn) | u8::from(red.harddrop) << 1 | u8::from(red.adaptive) << 2;
    let probability = (red.probability.fraction() * 2_f64.powi(32)) as u32;
    let logs = u32::from_ne_bytes([thresholds.weight_log, 0, IDLE_SCALE_NEVER, flags]);
    let parameters = [limit, min as u32, max as u32, logs].into_iter();
    let mut attributes =
        vec![(1, parameters.flat_map(u32::to_ne_bytes).collect()), (2, vec![0; 256])];
    attributes.extend(numbers([(3, probability.max(1))]));
    Ok(attributes)
}

/// `Scell_log` of red with which the average queue length does not fall during idle times.
const IDLE_SCALE_NEVER: u8 = 31;

fn cake_attributes(cake: &CakeConfig, queue: Limit) -> Result<Attributes, Unsupported> {
    let holds_all = match queue {
        Limit::Packets(packets) => packets >= cake.most_packets(),
        Limit::Bytes(bytes) => bytes >= cake.memory_limit(),
    };
    if !holds_all {
        let packets = cake.most_packets();
        let what = format!("Linux's cake has no limit except its memory; give {packets} packets");
        return Err(Unsupported::new("link.queue", what));
    }
    let rate = cake.bandwidth.map_or(0, bytes_per_second);
    let mut attributes = vec![(2, rate.to_ne_bytes().to_vec())];
    attributes.extend(numbers([
        (3, diffserv(cake.diffserv)),
        (5, flow_mode(cake.isolation)),
        (7, micros("link.qdisc.rtt", cake.rtt)?),
        (10, number("link.qdisc.memory", cake.memory.unwrap_or_default().as_u64())?),
        (16, ack_filter(cake.ack_filter)),
    ]));
    Ok(attributes)
}

const fn diffserv(diffserv: Diffserv) -> u32 {
    match diffserv {
        Diffserv::Diffserv3 => 0,
        Diffserv::Diffserv4 => 1,
        Diffserv::Diffserv8 => 2,
        Diffserv::BestEffort => 3,
        Diffserv::Precedence => 4,
    }
}

const fn flow_mode(isolation: Isolation) -> u32 {
    match isolation {
        Isolation::Flowblind => 0,
        Isolation::Hosts => 3,
        Isolation::Flows => 4,
        Isolation::TripleIsolate => 7,
    }
}

const fn ack_filter(ack_filter: AckFilter) -> u32 {
    match ack_filter {
        AckFilter::Off => 0,
        AckFilter::On => 1,
        AckFilter::Aggressive => 2,
    }
}

#[cfg(test)]
mod tests {
    use skyhop_link::LinkSchedule;
    use skyhop_units::Ratio;

    use super::*;

    const PACKETS: Limit = Limit::Packets(100);
    const BYTES: Limit = Limit::Bytes(Bytes::new(250_000));
    const FRONT: &str = r#"{"kind": "fifo", "drop": "front"}"#;

    fn child_of(json: &str, queue: Limit) -> Result<TcQdisc, Unsupported> {
        let rate = Rate::from_bits_per_second(50_000_000);
        child(&LinkConfig {
            schedule: LinkSchedule::fixed(Duration::from_millis(20), rate, Ratio::ZERO),
            qdisc: serde_json::from_str(json).unwrap(),
            queue,
            seed: 7,
        })
    }

    /// Attributes of four bytes as numbers, and the other attributes.
    fn attributes(json: &str, queue: Limit) -> (Vec<(u16, u32)>, Attributes) {
        let child = child_of(json, queue).unwrap();
        let TcQdisc::Other { options: TcOptions::Attributes(all), .. } = child else {
            panic!("{child:?}")
        };
        let (short, long): (Attributes, Attributes) =
            all.into_iter().partition(|(_, value)| value.len() == 4);
        let numbers = short
            .into_iter()
            .map(|(kind, value)| (kind, u32::from_ne_bytes(value.try_into().expect("four bytes"))));
        (numbers.collect(), long)
    }

    fn words(bytes: &[u8]) -> Vec<u32> {
        bytes.chunks(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap())).collect()
    }

    #[test]
    fn a_fifo_is_the_one_of_linux_that_counts_and_drops_in_the_same_way() {
        let fifo = |json: &str, queue| child_of(json, queue).unwrap();
        assert_eq!(fifo(r#""fifo""#, PACKETS), TcQdisc::Pfifo { limit: 100 });
        assert_eq!(fifo(r#""fifo""#, BYTES), TcQdisc::Bfifo { limit: 250_000 });
        assert_eq!(fifo(FRONT, PACKETS), TcQdisc::PfifoHeadDrop { limit: 100 });
    }

    #[test]
    fn codels_and_pies_have_all_their_parameters() {
        let codel = r#"{"kind": "codel", "target": "3 ms", "ecn": true, "ce_threshold": "0 s"}"#;
        let (numbers, _) = attributes(codel, PACKETS);
        assert_eq!(numbers, [(1, 3_000), (2, 100), (3, 100_000), (4, 1), (5, 0)]);
        let (numbers, _) = attributes(r#"{"kind": "fq_codel", "ce_threshold": "1 ms"}"#, PACKETS);
        let expected = [(4, 1), (5, 1024), (6, 1514), (8, 64), (9, 32 << 20), (7, 1_000)];
        assert_eq!(numbers[3..], expected);
        let (numbers, _) = attributes(r#"{"kind": "pie", "tupdate": "20 ms"}"#, PACKETS);
        let usual = [(1, 15_000), (2, 100), (3, 20_000), (4, 2), (5, 20), (6, 0), (7, 0), (8, 0)];
        assert_eq!(numbers, usual);
        let (numbers, _) = attributes(r#"{"kind": "fq_pie", "ecn_prob": "7 %"}"#, PACKETS);
        let [_, flows, target, _, _, _, quantum, percent, ..] = numbers[..] else {
            panic!("{numbers:?}")
        };
        assert_eq!([flows, target, quantum, percent], [(2, 1024), (3, 15_000), (7, 1514), (9, 7)]);
    }

    #[test]
    fn sfq_is_the_smaller_of_both_limits() {
        let sfq = r#"{"kind": "sfq", "perturb": "10 s", "depth": 60, "headdrop": true}"#;
        let TcQdisc::Other { options: TcOptions::Structure(all), .. } =
            child_of(sfq, PACKETS).unwrap()
        else {
            panic!("sfq has a structure")
        };
        assert_eq!((&all[..7], all.len()), (&[1514, 10, 100, 1024, 128, 60, 1][..], 18));
    }

    #[test]
    fn fq_has_one_band_and_the_hash_of_what_has_no_socket() {
        let fq = r#"{"kind": "fq", "flows": 256, "maxrate": "8 Mbit/s"}"#;
        let (numbers, others) = attributes(fq, PACKETS);
        let turns = [(3, 3028), (4, 15_140), (7, 1_000_000), (9, 40_000), (10, 255), (11, 68_750)];
        assert_eq!(numbers[2..], turns);
        let [(16, map)] = &others[..] else { panic!("{others:?}") };
        assert_eq!((words(&map[..4]), &map[4..]), (vec![3], &[1; 16][..]));
    }

    #[test]
    fn red_is_told_what_tc_works_out() {
        let red = r#"{"kind": "red", "bandwidth": "0 bit/s", "ecn": true, "adaptive": true}"#;
        let (numbers, others) = attributes(red, BYTES);
        let [(1, parameters), (2, table)] = &others[..] else { panic!("{others:?}") };
        // A burst of 34 packets: 35 - 20.8 is no more than (1 - (15/16)^34) / (1/16) = 14.22, but more than with 1/8.
        assert_eq!(words(&parameters[..12]), [250_000, 20_833, 62_500]);
        assert_eq!((&parameters[12..], table.len()), (&[4, 0, 31, 5][..], 256));
        assert_eq!(numbers, [(3, 85_899_345)]);
    }

    #[test]
    fn cake_has_a_rate_of_its_own_where_it_is_given() {
        let large = Limit::Packets(1 << 16);
        let cake = r#"{"kind": "cake", "bandwidth": "40 Mbit/s", "isolation": "flows", "diffserv": "besteffort", "ack_filter": "on"}"#;
        let (numbers, others) = attributes(cake, large);
        assert_eq!(numbers, [(3, 3), (5, 4), (7, 100_000), (10, 0), (16, 1)]);
        assert_eq!(others, [(2, 5_000_000_u64.to_ne_bytes().to_vec())]);
        let (numbers, others) = attributes(r#""cake""#, large);
        assert_eq!((numbers[0], numbers[1]), ((3, 0), (5, 7)));
        assert_eq!(others, [(2, vec![0; 8])]);
    }

    #[test]
    fn unsupported_disciplines_are_named_by_their_key() {
        let still = r#"{"kind": "red", "bandwidth": "0 bit/s""#;
        for (json, queue, expected) in [
            (FRONT, BYTES, "link.queue: Linux's pfifo_head_drop counts packets; give the limit in"),
            (
                r#"{"kind": "fifo", "drop": "front", "max_sojourn": "9 ms"}"#,
                PACKETS,
                "link.qdisc.max_sojourn: Linux's pfifo_head_drop has no",
            ),
            (r#""codel""#, BYTES, "link.queue: Linux's codel counts packets"),
            (r#""red""#, PACKETS, "link.queue: Linux's red counts bytes"),
            (r#""red""#, BYTES, "link.qdisc.bandwidth: below a token bucket"),
            (&format!(r#"{still}, "probability": "0 %"}}"#), BYTES, "link.qdisc.probability: "),
            (&format!(r#"{still}, "max": "1 GB"}}"#), BYTES, "link.qdisc.max: with this"),
            (r#"{"kind": "sfq", "perturb": "500 ms"}"#, PACKETS, "link.qdisc.perturb: "),
            (r#"{"kind": "sfq", "depth": 128}"#, PACKETS, "link.qdisc.depth: "),
            (r#"{"kind": "sfq", "flows": 65409}"#, PACKETS, "link.qdisc.flows: "),
            (r#"{"kind": "sfq", "limit": 1}"#, PACKETS, "link.qdisc.limit: "),
            (r#"{"kind": "fq_codel", "quantum": "255 B"}"#, PACKETS, "link.qdisc.quantum: "),
            (r#"{"kind": "fq_pie", "ecn_prob": "1.5 %"}"#, PACKETS, "link.qdisc.ecn_prob: "),
            (r#"{"kind": "fq_pie", "flows": 65537}"#, PACKETS, "link.qdisc.flows: "),
            (r#"{"kind": "fq", "maxrate": "40 Gbit/s"}"#, PACKETS, "link.qdisc.maxrate: "),
            (r#"{"kind": "fq", "initial_quantum": "2 MB"}"#, PACKETS, "link.qdisc.initial_quantum"),
            (
                r#""cake""#,
                PACKETS,
                "link.queue: Linux's cake has no limit except its memory; give 20186",
            ),
            (r#""threshold-drop""#, PACKETS, "link.qdisc: Linux has no such"),
        ] {
            let error = child_of(json, queue).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{json}: {error}");
        }
    }
}
