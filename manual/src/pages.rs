//! Manual pages: one for each program, and one for each of its commands.

use crate::ManualFile;
use clap::Command;
use clap_mangen::{
    Man,
    roff::{Inline, Roff, bold, roman},
};
use git_fence_client::EXIT_CODES;
use git_fence_core::clone_setting::CLONE_SETTINGS;
use git_fence_system::env;
use std::io;

/// What the definitions do not say: examples, by the name of the page.
const EXAMPLES: &[(&str, &[(&str, &str)])] = &[
    (
        "git-fence",
        &[
            (
                "git fence run -- ./nightly.sh",
                "Run a script under the lease; every git push inside it carries a token.",
            ),
            ("git fence status", "Show who holds the lease."),
            ("git fence demo", "See in ten seconds what it is for."),
        ],
    ),
    (
        "git-fence-run",
        &[
            ("git fence run -- ./nightly.sh", "Run it, or skip it if another machine is at it."),
            ("git fence run --wait 5m -- ./publish.sh", "Wait up to five minutes for the lease."),
            ("git fence run --quiet -E 75 -- ./nightly.sh", "For cron: a skip says nothing and exits with code 75."),
        ],
    ),
    ("git-fence-push", &[("git fence push origin main", "Take the lease for one push, and release it with the push.")]),
    (
        "git-fence-hook",
        &[
            ("git-fence-hook install /srv/git/app.git", "Install the gate in a repository."),
            ("git-fence-hook doctor /srv/git/app.git", "Find out whether pushes are really checked."),
        ],
    ),
];

/// The pages of a program in a section of the manual.
pub(crate) fn of(program: Command, section: &str, manual: &str) -> io::Result<Vec<ManualFile>> {
    let mut program = program.disable_help_subcommand(true);
    program.build();
    let mut pages = Vec::new();
    let version = program.get_version().unwrap_or_default().to_owned();
    add(&program, &Edition { section, manual, version: &version, program: &program }, &mut pages)?;
    Ok(pages)
}

/// What all pages of a program share.
struct Edition<'a> {
    section: &'a str,
    manual: &'a str,
    version: &'a str,
    program: &'a Command,
}

/// Adds the page of a command and those of its subcommands.
fn add(command: &Command, edition: &Edition<'_>, pages: &mut Vec<ManualFile>) -> io::Result<()> {
    let name = name_of(command);
    let path = format!("share/man/man{0}/{name}.{0}", edition.section);
    pages.push(ManualFile { path, content: page(command, edition)? });
    shown(command).try_for_each(|subcommand| add(subcommand, edition, pages))
}

fn name_of(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set())
}

fn page(command: &Command, edition: &Edition<'_>) -> io::Result<Vec<u8>> {
    let source = format!("git-fence {}", edition.version);
    let man = Man::new(command.clone()).section(edition.section).manual(edition.manual).source(source);
    let mut out = Vec::new();
    man.render_title(&mut out)?;
    man.render_name_section(&mut out)?;
    man.render_synopsis_section(&mut out)?;
    man.render_description_section(&mut out)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(&mut out)?;
    }
    if shown(command).next().is_some() {
        man.render_subcommands_section(&mut out)?;
    }
    more(command, edition).to_writer(&mut out)?;
    Ok(out)
}

/// The sections that come from tables.
fn more(command: &Command, edition: &Edition<'_>) -> Roff {
    let (name, mut roff) = (name_of(command), Roff::new());
    let is_client = edition.section == "1";
    if is_client && matches!(name, "git-fence" | "git-fence-run") {
        let codes = EXIT_CODES.iter().map(|(code, meaning)| (bold(*code), (*meaning).to_owned()));
        list(&mut roff, "EXIT STATUS", codes);
    }
    if name == "git-fence-run" {
        let variables = env::RUN.iter().filter(|variable| variable.read_by.contains("the command"));
        list(&mut roff, "ENVIRONMENT", variables.map(|variable| (bold(variable.name), sentence(variable.about))));
    }
    if is_client && command.get_arguments().any(|argument| argument.get_id() == "ttl") {
        let settings = CLONE_SETTINGS.iter().map(|setting| {
            let about = format!("{} Default: {}.", sentence(setting.meaning), setting.default);
            (bold(setting.name()), about.replace('`', ""))
        });
        list(&mut roff, "CONFIGURATION", settings);
    }
    if let Some((_, examples)) = EXAMPLES.iter().find(|(page, _)| *page == name) {
        list(&mut roff, "EXAMPLES", examples.iter().map(|(line, what)| (bold(*line), (*what).to_owned())));
    }
    see_also(&mut roff, command, edition);
    roff
}

fn list(roff: &mut Roff, title: &str, rows: impl Iterator<Item = (Inline, String)>) {
    roff.control("SH", [title]);
    for (head, text) in rows {
        roff.control("TP", []);
        roff.text([head]);
        roff.text([roman(text)]);
    }
}

fn see_also(roff: &mut Roff, command: &Command, edition: &Edition<'_>) {
    let own = (name_of(command).to_owned(), edition.section);
    let of_program = [edition.program].into_iter().map(|page| (name_of(page).to_owned(), edition.section));
    let commands = shown(command).map(|page| (name_of(page).to_owned(), edition.section));
    let others = [("git-fence", "1"), ("git-fence-hook", "8"), ("git-push", "1")];
    let others = others.map(|(name, section)| (name.to_owned(), section));
    let mut pages: Vec<(String, &str)> = Vec::new();
    for page in of_program.chain(commands).chain(others) {
        if page != own && !pages.contains(&page) {
            pages.push(page);
        }
    }
    roff.control("SH", ["SEE ALSO"]);
    let count = pages.len();
    let parts = pages.into_iter().enumerate().flat_map(|(n, (name, section))| {
        let comma = if n + 1 < count { ", " } else { "" };
        [bold(name), roman(format!("({section}){comma}"))]
    });
    roff.text(parts.collect::<Vec<_>>());
}

/// A phrase of a table as a sentence.
fn sentence(text: &str) -> String {
    let mut rest = text.chars();
    rest.next().map_or(String::new(), |first| first.to_uppercase().chain(rest).chain(['.']).collect())
}
