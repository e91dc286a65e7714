//! Episodes compared with runs of networks, and the rewards of agents.

use std::fs;
use std::num::NonZero;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use skyhop_experiment::Experiment;
use skyhop_gym::{Episode, EpisodeStatus, Episodes, GymError, REWARDS, Reward};
use skyhop_needs::onnx::{Layer, network};
use skyhop_policy::Card;
use skyhop_scenario::parse_scenario;
use skyhop_sim::Simulator;
use tempfile::TempDir;

/// Card that observes quantities that differ between runs, and sets a window of 40 packets, plus a little that
/// grows with the RTT.
const CARD: &str = "title = \"test\"\n[tcp]\ninterval = \"20 ms\"\n[observation]\nsteps = 2\nfeatures = [\
    { of = \"cwnd\", times = 0.025 }, { of = \"rtt_s\" }]\n[network]\nfile = \"net.onnx\"\n\
    [action]\nmoves = \"cwnd\"\nshape = \"power\"\nround = \"nearest\"\n";
const WEIGHTS: [f32; 4] = [0.0, 0.0, -1.0, 0.5];

/// Output of the card's network.
fn said(seen: &[f32]) -> f64 {
    let sum = seen.iter().zip(WEIGHTS).fold(0.0, |sum: f32, (seen, weight)| sum + seen * weight);
    f64::from(sum + 1.0)
}

fn experiment(flow: &str, more: &str) -> Experiment {
    let text = format!(
        "[path]\nkind = \"fixed\"\nrtt = \"40 ms\"\n[link]\nrate = \"20 Mbit/s\"\nloss = \"0.5 %\"\n\
         queue = \"100 kB\"\n[run]\nduration = \"10 s\"\n[[flow]]\ncc = \"policy\"\n{flow}\n{more}"
    );
    let no_places = |name: &str| Err(format!("no place {name}"));
    parse_scenario(&text, "x.toml", &[])
        .unwrap()
        .experiment(&no_places, &mut |_, _| ControlFlow::Continue(()))
        .unwrap()
}

fn card() -> Arc<Card> {
    Arc::new(Card::parse(CARD).unwrap())
}

fn begin(experiment: Experiment, reward: &str) -> Episode {
    Episode::begin(experiment, &card(), Reward::named(reward).unwrap()).unwrap()
}

/// Answer as the network does until the end; return the number of answers and the sum of rewards.
fn finish(episode: &mut Episode) -> (u32, f64) {
    let (mut answers, mut sum) = (0, 0.0);
    while episode.last_step().status == EpisodeStatus::Running {
        let output = said(episode.observation());
        sum += episode.step(output).reward;
        answers += 1;
    }
    (answers, sum)
}

fn write_card(directory: &Path) -> String {
    let onnx = network(WEIGHTS.len(), &[Layer::Dense(WEIGHTS.to_vec(), vec![1.0])]);
    fs::write(directory.join("net.onnx"), onnx).unwrap();
    let file = directory.join("card.toml");
    fs::write(&file, CARD).unwrap();
    file.to_string_lossy().into_owned()
}

#[test]
fn an_episode_is_the_run_of_a_network_with_the_same_outputs() {
    let directory = TempDir::new().unwrap();
    let file = write_card(directory.path());
    let others = [
        "",
        "policy.delay = \"30 ms\"",
        "[[flow]]\ncc = \"policy\"\nCARD\nstart = \"2 s\"\n[[flow]]\ncc = \"cubic\"\nextra_rtt = \"25 ms\"",
    ];
    for more in others {
        let with_card = experiment(
            &format!("policy.card = \"{file}\""),
            &more.replace("CARD", &format!("policy.card = \"{file}\"")),
        );
        let run = skyhop_engine::run_in_memory(&Simulator, &with_card).unwrap();
        let mut episode = begin(experiment("", &more.replace("CARD", "")), "power");
        finish(&mut episode);
        let received: Vec<u64> = episode.received().map(|bytes| bytes.as_u64()).collect();
        assert_eq!(received.len(), run.summary.flows.len());
        for (flow, bytes) in run.summary.flows.iter().zip(received) {
            let goodput_bps = bytes as f64 * 8.0 / (flow.stop_s - flow.start_s);
            assert!((flow.goodput_bps as f64 - goodput_bps).abs() <= 1.0, "{more}: {flow:?}");
        }
    }
}

#[test]
fn the_same_outputs_are_the_same_episode_on_any_number_of_threads() {
    let of = |threads: usize| {
        let reward = Reward::named("leo").unwrap();
        let threads = NonZero::new(threads).unwrap();
        let mut episodes = Episodes::new((*card()).clone(), reward, 5, threads);
        let begun = (0..4).map(|place| (place, experiment("", ""))).collect();
        episodes.begin(begun).unwrap();
        let mut steps = Vec::new();
        for _ in 0..200 {
            let outputs: Vec<f64> = (0..5)
                .map(|place| {
                    episodes.slots()[place].as_ref().map_or(0.0, |one| said(one.observation()))
                })
                .collect();
            episodes.step(&outputs);
            steps.extend(episodes.slots().iter().flatten().map(|one| *one.last_step()));
        }
        steps
    };
    let [one, three] = [1, 3].map(of);
    assert_eq!(one.len(), 800);
    assert_eq!(one, three);
}

#[test]
fn rewards_are_finite_and_say_what_they_are_for() {
    for reward in REWARDS {
        let sums = [1.0, -1.0].map(|always| {
            let mut episode = begin(experiment("", "[[flow]]\ncc = \"policy\""), reward.name);
            let mut sum = 0.0;
            while episode.last_step().status == EpisodeStatus::Running {
                // One output sends almost nothing, the other keeps the queue full.
                let got = episode.step(if always > 0.0 { 1.0 } else { -1.0 }).reward;
                assert!(got.is_finite(), "{}", reward.name);
                sum += got;
            }
            sum
        });
        let mut episode = begin(experiment("", "[[flow]]\ncc = \"policy\""), reward.name);
        let (answers, sensible) = finish(&mut episode);
        assert!(answers > 500, "{answers}");
        assert!(sensible > sums[0].max(sums[1]), "{}: {sensible} {sums:?}", reward.name);
    }
}

#[test]
fn an_episode_ends_complete_where_all_has_arrived_and_with_the_time_where_not() {
    let mut episode = begin(experiment("bytes = \"1 MB\"", ""), "power");
    finish(&mut episode);
    assert_eq!(episode.last_step().status, EpisodeStatus::Complete);
    let at_the_end = *episode.last_step();
    assert_eq!(*episode.step(1.0), at_the_end, "afterwards nothing changes");
    let mut episode = begin(experiment("", ""), "power");
    finish(&mut episode);
    assert_eq!(episode.last_step().status, EpisodeStatus::TimeUp);
}

#[test]
fn outputs_that_are_no_numbers_or_absurd_are_no_catastrophe() {
    let mut episode = begin(experiment("", ""), "power");
    for output in [f64::NAN, 1e300, f64::NEG_INFINITY, -1e300].into_iter().cycle().take(100) {
        assert!(episode.step(output).reward.is_finite());
    }
}

#[test]
fn an_episode_needs_a_flow_with_an_agent() {
    let text = "[path]\nkind = \"fixed\"\nrtt = \"40 ms\"\n[link]\nrate = \"20 Mbit/s\"\n[run]\nduration = \"1 s\"\n\
                [[flow]]\ncc = \"cubic\"";
    let no_places = |name: &str| Err(format!("no place {name}"));
    let experiment = parse_scenario(text, "x.toml", &[])
        .unwrap()
        .experiment(&no_places, &mut |_, _| ControlFlow::Continue(()))
        .unwrap();
    let error = Episode::begin(experiment, &card(), REWARDS[0]).unwrap_err();
    assert!(matches!(error, GymError::NoAgent), "{error}");
    assert!(Reward::named("fame").unwrap_err().to_string().contains("astraea, leo, orca, power"));
}
