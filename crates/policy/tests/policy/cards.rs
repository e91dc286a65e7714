//! Tests of the keys of cards, and of messages about wrong ones.

use skyhop_policy::Card;

/// Valid card: the given features, reports and action, with a network of any file.
pub(crate) fn plain(features: &str, steps: usize, action: &str) -> String {
    format!(
        "title = \"test\"\n[observation]\nsteps = {steps}\nfeatures = [{features}]\n[network]\nfile = \"n.onnx\"\n\
         [action]\n{action}\n"
    )
}

pub(crate) const CWND: &str = "moves = \"cwnd\"\nshape = \"power\"";

#[test]
fn errors_of_cards_are_one_line_with_the_key() {
    let (one, mine) = ("{ of = \"cwnd\" }", "{ name = \"mine\", of = \"cwnd\" }");
    let own = |quantities: &str| {
        plain(one, 1, CWND)
            .replace("features =", &format!("quantities = [{quantities}]\nfeatures ="))
    };
    for (card, expected) in [
        ("title = 3".to_owned(), "line 1: "),
        (plain(one, 1, "moves = \"cwnd\""), "shape"),
        (plain(one, 0, CWND), "observation.steps: "),
        (plain(one, 200_000, CWND), "observation.steps: "),
        (plain("", 1, CWND), "observation.features: is empty"),
        (plain("{ of = [] }", 1, CWND), "observation.features.0.of: is empty"),
        (
            plain("{ of = \"cwnds\" }", 1, CWND),
            "observation.features.0.of: `cwnds` is not a known quantity",
        ),
        (
            plain("{ of = \"cwnd\", over = [\"one\", \"max(cwnds)\"] }", 1, CWND),
            "observation.features.0.over: `cwnds` is not a known quantity",
        ),
        (plain("{ of = \"median(cwnd, 3)\" }", 1, CWND), "expected a term"),
        (plain("{ of = \"max(cwnd, 0)\" }", 1, CWND), "expected a term"),
        (plain("{ of = \"max(cwnd, 3\" }", 1, CWND), "expected a term"),
        (plain("{ of = \"cwnd\", times = inf }", 1, CWND), "observation.features.0: "),
        (
            plain("{ of = \"cwnd\", least = 2.0, most = 1.0 }", 1, CWND),
            "observation.features.0.least",
        ),
        (plain("{ of = \"cwnd\", by = 3 }", 1, CWND), "unknown field `by`"),
        (plain("{ of = \"cwnd\", decimals = 10 }", 1, CWND), "observation.features.0.decimals"),
        (own("{ of = \"cwnd\" }"), "observation.quantities.0.name: expected a word"),
        (
            own("{ name = \"A b\", of = \"cwnd\" }"),
            "observation.quantities.0.name: expected a word",
        ),
        (
            own("{ name = \"cwnd\", of = \"one\" }"),
            "observation.quantities.0.name: `cwnd` is defined already",
        ),
        (
            own(&format!("{mine}, {mine}")),
            "observation.quantities.1.name: `mine` is defined already",
        ),
        // A quantity may use only those defined before it.
        (
            own("{ name = \"mine\", of = \"sum(mine)\" }"),
            "observation.quantities.0.of: `mine` is not a known quantity",
        ),
        (own(&vec![mine; 1001].join(", ")), "observation.quantities: expected 1000 at most"),
        (plain(one, 1, &format!("{CWND}\nleast_cwnd = 0.5")), "action.least_cwnd"),
        (plain(one, 1, &format!("{CWND}\nfirst_cwnd = 0.5")), "action.first_cwnd"),
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
    assert_eq!(Card::parse(&own(mine)).unwrap().inputs(), 1);
}
