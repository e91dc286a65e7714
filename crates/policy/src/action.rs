//! Translation of a network's output into a decision about window or rate.

use skyhop_cc::bindings::SKYHOP_FACTOR_ONE;
use skyhop_cc::{Decision, Report};

use crate::card::{ActionCard, Moves, Round, Shape};
use crate::feature::rounded;

/// State of a policy's actions on one connection.
#[derive(Debug, Clone)]
pub struct Actor {
    card: ActionCard,
    /// Congestion window that the policy keeps itself, in packets ([`Moves::OwnCwnd`]); starts at the card's
    /// `first_cwnd`, or else at 0 until the first report sets it.
    cwnd: f64,
    /// Pacing rate that the policy keeps itself, in bit/s ([`Moves::OwnRate`]).
    rate_bps: f64,
}

impl Actor {
    /// Create the state for a connection that has not reported yet.
    pub fn new(card: &ActionCard) -> Self {
        let (cwnd, rate_bps) = (card.first_cwnd.unwrap_or(0.0), card.rate_mbps[0] * 1e6);
        Self { card: card.clone(), cwnd, rate_bps }
    }

    /// Decision about `report` that follows from `output`, which must be finite.
    pub fn act(&mut self, output: f64, report: &Report) -> Decision {
        let card = &self.card;
        let output = card.output_decimals.map_or(output, |decimals| rounded(output, decimals));
        let factor = match card.shape {
            Shape::Power => card.base.powf(output),
            Shape::Step if output >= 0.0 => 1.0 + card.step * output,
            Shape::Step => 1.0 / (1.0 - card.step * output),
        };
        // A factor with decimals is kept as a whole number of parts, so that the product with a window is exact.
        let (parts, of) = card.factor_decimals.map_or((factor, 1.0), |decimals| {
            let scale = 10_f64.powi(decimals as i32);
            ((factor * scale).trunc(), scale)
        });
        let times_factor = |value: f64| value * parts / of;
        let bounds = (card.least_cwnd, card.most_cwnd);
        let whole = |cwnd: f64| whole(cwnd.clamp(bounds.0, bounds.1), card.round, output) as u32;
        match card.moves {
            Moves::Cwnd => {
                Decision { cwnd: whole(times_factor(report.cwnd.into())), ..Decision::default() }
            }
            Moves::OwnCwnd => {
                let before = if self.cwnd == 0.0 { report.cwnd.into() } else { self.cwnd };
                let next = times_factor(before);
                // The unrounded value may lie a little outside the bounds, as long as the rounded one is inside.
                let is_within =
                    (bounds.0..=bounds.1).contains(&self::whole(next, card.round, output));
                self.cwnd = if is_within { next } else { next.clamp(bounds.0, bounds.1) };
                Decision { cwnd: whole(self.cwnd), ..Decision::default() }
            }
            Moves::OwnRate => {
                let [_, least, most] = card.rate_mbps.map(|rate| rate * 1e6);
                self.rate_bps = times_factor(self.rate_bps).clamp(least, most);
                let rtt_s = f64::from(report.srtt_us.max(1)) / 1e6;
                let packets = self.rate_bps * rtt_s / 8.0 / f64::from(report.mss.max(1));
                Decision {
                    cwnd: whole((packets * card.window_rtts).ceil()),
                    pacing_rate: (self.rate_bps / 8.0) as u64,
                    ..Decision::default()
                }
            }
            Moves::Factor => {
                let scaled = times_factor(SKYHOP_FACTOR_ONE.into()).round();
                Decision { factor: scaled.clamp(1.0, 1e6) as u32, ..Decision::default() }
            }
        }
    }
}

fn whole(cwnd: f64, round: Round, output: f64) -> f64 {
    match round {
        Round::Down => cwnd.floor(),
        Round::Up => cwnd.ceil(),
        Round::Away if output >= 0.0 => cwnd.ceil(),
        Round::Away => cwnd.floor(),
        Round::Nearest => cwnd.round(),
    }
}
