//! Rate predictions for players, as scenarios give them.

use skyhop_scenario::parse_scenario;

fn error_of(app: &str) -> String {
    let text = format!(
        "[path]\nkind = \"fixed\"\nrtt = \"40 ms\"\n[[flow]]\napp = {{ kind = \"dash\", {app} }}\n"
    );
    match parse_scenario(&text, "x.toml", &[]) {
        Ok(_) => String::new(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_list_a_model_or_an_oracle() {
    assert_eq!(error_of("controller = \"mpc-l\", predicted = [\"1 Mbit/s\", \"2 Mbit/s\"]"), "");
    assert_eq!(error_of("controller = \"mpc-o\", predicted = { oracle = {} }"), "");
    let whole = "{ oracle = { mean_error = -0.1, relative_sd = 0.2, seed = 1 } }";
    assert_eq!(error_of(&format!("controller = \"mpc-l\", predicted = {whole}")), "");
    // Controllers that do not look ahead accept the key too, so that studies can compare them.
    assert_eq!(error_of(&format!("controller = \"mpc-d\", predicted = {whole}")), "");
    let nobody = error_of("controller = \"mpc-l\"");
    assert!(nobody.starts_with("x.toml: flow.0.app.controller: mpc-l plans with predictions; expected `predicted`: a model's directory"), "{nobody}");
}

#[test]
fn what_is_none_of_them_is_one_line() {
    let of =
        |predicted: &str| error_of(&format!("controller = \"mpc-l\", predicted = {predicted}"));
    for (predicted, expected) in [
        (
            "\"nowhere\"",
            "there is no model \"nowhere\", neither relative to the scenario nor in the current directory",
        ),
        ("\"\"", "there is no model \"\""),
        ("3", "expected a list of rates, a model's directory, or { oracle = { … } }"),
        ("{ oracle = { relative_sd = 11 } }", "relative_sd is 11; expected 0 to 10"),
        ("{ oracle = { mean_error = -1.0 } }", "mean_error is -1; expected -0.99 to 10"),
        ("{ oracle = { sd = 1 } }", "sd"),
        ("{ model = \"x\" }", "model"),
        ("[\"fast\"]", "fast"),
    ] {
        let error = of(predicted);
        assert!(
            error.starts_with("x.toml: flow.0.app") && error.contains(expected),
            "{predicted}: {error}"
        );
        assert!(!error.contains('\n'), "{error}");
    }
}
