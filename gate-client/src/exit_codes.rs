//! What the exit codes of `git fence` mean, for the manual.

/// Each exit code of `git fence`, and what it means.
pub const EXIT_CODES: &[(&str, &str)] = &[
    ("0", "It is done; or the run was skipped because another holds the lease, unless -E sets another code."),
    ("1", "Anything else: the push was refused, was not sent, or landed in part."),
    ("2", "Wrong usage: an unknown flag, a value out of range, no such remote."),
    ("11", "Another holds the lease (acquire, push, run --if-held fail)."),
    ("12", "The lease has been taken over (renew, advance)."),
    ("69", "The remote cannot be reached or is busy, or could not be asked whether the push landed. Never a skip."),
    ("75", "The lease was lost, or --stall-after or --max-hold stopped the command (run, push)."),
    ("77", "No right: the remote denies access or writing, or credentials would have to be typed."),
    ("126, 127", "The command of run cannot be executed, or was not found."),
    ("128+n", "The command of run was killed by signal n. Every other code of the command is passed on."),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_the_documentation() {
        let page = include_str!("../../docs/agents.md");
        let documented: Vec<&str> = page
            .lines()
            .skip_while(|line| *line != "## Exit codes")
            .skip(1)
            .take_while(|line| !line.starts_with("## "))
            .filter_map(|line| line.strip_prefix("| ")?.split_once(" |"))
            .map(|(code, _)| code)
            .filter(|code| code.starts_with(|c: char| c.is_ascii_digit()))
            .collect();
        assert!(documented.len() > 5, "{documented:?}");
        for code in &documented {
            assert!(EXIT_CODES.iter().any(|(known, _)| known == code), "{code} is in docs/agents.md");
        }
        for (code, _) in EXIT_CODES.iter().filter(|(code, _)| *code != "128+n") {
            assert!(documented.contains(code), "{code} is not in docs/agents.md");
        }
    }
}
