//! What a card may say, and what is said of those that are wrong.

use skyhop_policy::Card;

/// A card that is right: one feature, of one report.
pub(crate) fn plain(features: &str, steps: usize, action: &str) -> String {
    format!(
        "title = \"test\"\n[observation]\nsteps = {steps}\nfeatures = [{features}]\n[network]\nfile = \"n.onnx\"\n\
         [action]\n{action}\n"
    )
}

pub(crate) const CWND: &str = "moves = \"cwnd\"\nshape = \"power\"";

#[test]
fn what_is_wrong_with_a_card_is_one_line_that_names_it() {
    let one = "{ of = \"cwnd\" }";
    for (card, expected) in [
        ("title = 3".to_owned(), "line 1: "),
        (plain(one, 1, "moves = \"cwnd\""), "shape"),
        (plain(one, 0, CWND), "observation.steps: "),
        (plain(one, 200_000, CWND), "observation.steps: "),
        (plain("", 1, CWND), "observation.features: is empty"),
        (plain("{ of = [] }", 1, CWND), "observation.features.0.of: is empty"),
        (plain("{ of = \"cwnds\" }", 1, CWND), "expected a term"),
        (plain("{ of = \"median(cwnd, 3)\" }", 1, CWND), "expected a term"),
        (plain("{ of = \"max(cwnd, 0)\" }", 1, CWND), "expected a term"),
        (plain("{ of = \"max(cwnd, 3\" }", 1, CWND), "expected a term"),
        (plain("{ of = \"cwnd\", times = inf }", 1, CWND), "observation.features.0: "),
        (
            plain("{ of = \"cwnd\", least = 2.0, most = 1.0 }", 1, CWND),
            "observation.features.0.least",
        ),
        (plain("{ of = \"cwnd\", by = 3 }", 1, CWND), "unknown field `by`"),
        (plain(one, 1, &format!("{CWND}\nleast_cwnd = 0.5")), "action.least_cwnd"),
        (plain(one, 1, &format!("{CWND}\nbase = -1.0")), "action.base"),
        (plain(one, 1, "moves = \"cwnd\"\nshape = \"step\"\nstep = 1.0"), "action.step"),
        (
            plain(one, 1, "moves = \"own-rate\"\nshape = \"step\"\nrate_mbps = [1.0, 2.0, 3.0]"),
            "action.rate_mbps",
        ),
    ] {
        let error = Card::parse(&card).unwrap_err().to_string();
        assert!(error.contains(expected) && !error.contains('\n'), "{card}: {error}");
    }
    assert_eq!(Card::parse(&plain(one, 3, CWND)).unwrap().inputs(), 3);
}
