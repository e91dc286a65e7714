//! Tests of cake with the kernel's own packets: DSCP classes and the ACK filter.

use skyhop_link::{AckFilter, CakeConfig, Limit, QueueDiscipline};
use skyhop_model::{Direction, Dscp, End, LossReason};
use skyhop_units::Bytes;

use crate::lab::{self, fixed, mbit, ms, tcp};

const ROOM: Limit = Limit::Bytes(Bytes::new(16_000_000));

#[test]
#[ignore = "soak: measures time"]
fn flows_in_the_background_make_room() {
    let mut experiment = fixed(ms(10), mbit(10), ms(4000));
    let forward = &mut experiment.links[0].forward;
    (forward.qdisc, forward.queue) = (QueueDiscipline::Cake(CakeConfig::default()), ROOM);
    let background =
        skyhop_experiment::FlowPlan { dscp: Dscp::Le, ..tcp(0, End::From, "cubic", None) };
    experiment.flows.extend([background, tcp(1, End::From, "cubic", None)]);
    let Some(outcome) = lab::run(&experiment) else { return };
    let goodput = [0, 1].map(|flow| outcome.data.summary.flows[flow].goodput_bps);
    // The tins' quanta are in the ratio of 64 to 1024.
    assert!(goodput[0] * 8 < goodput[1] && goodput[1] > 7_000_000, "{goodput:?} bit/s");
}

#[test]
#[ignore = "soak: measures time"]
fn redundant_acknowledgements_are_filtered() {
    for device in lab::devices() {
        let mut experiment = fixed(ms(10), mbit(20), ms(3000));
        experiment.device = device;
        let back = &mut experiment.links[0].back;
        let cake = CakeConfig { ack_filter: AckFilter::On, ..CakeConfig::default() };
        (back.qdisc, back.queue) = (QueueDiscipline::Cake(cake), ROOM);
        back.schedule.rate[0].value = skyhop_units::Rate::from_bits_per_second(100_000);
        experiment.flows.push(tcp(0, End::From, "cubic", None));
        let Some(outcome) = lab::run(&experiment) else { return };
        let rows = outcome.data.events.iter();
        let filtered = rows.filter(|row| {
            row.reason == Some(LossReason::Queue) && row.direction == Some(Direction::Back)
        });
        let (filtered, goodput) = (filtered.count(), outcome.data.summary.flows[0].goodput_bps);
        // Unfiltered, 100 kbit/s carry about 190 ACKs per second; at one per two packets, that allows 4.5 Mbit/s.
        assert!(filtered > 200, "{device}: {filtered} filtered");
        assert!(goodput > 9_000_000, "{device}: {goodput} bit/s");
    }
}
