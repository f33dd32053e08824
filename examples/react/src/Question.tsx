import type { Interaction, ThreadHandle } from "turnfast-client";

/** What the agent asks of a person. It stays answerable after a reload, and in every tab. */
export function Question({ interaction, thread }: { interaction: Interaction; thread: ThreadHandle }) {
  const { toolCallId, suspendPayload: asked } = interaction;
  const disabled = interaction.state !== "answerable";
  if (asked?.kind === "question") {
    const isFree = asked.freeText || !asked.options?.length;
    return (
      <fieldset disabled={disabled}>
        <legend>{asked.question}</legend>
        {asked.options?.map((answer) => (
          <button key={answer} onClick={() => thread.answer(toolCallId, { answer })}>
            {answer}
          </button>
        ))}
        {isFree && (
          <form action={(form: FormData) => thread.answer(toolCallId, { answer: String(form.get("answer")) })}>
            <input name="answer" aria-label="Answer" required />
            <button>Answer</button>
          </form>
        )}
        <button onClick={thread.cancelSuspended}>Cancel the reply</button>
      </fieldset>
    );
  }
  return (
    <fieldset disabled={disabled}>
      <legend>
        May {interaction.toolName} run with {JSON.stringify(interaction.input)}?
      </legend>
      <button onClick={() => thread.answer(toolCallId, { approved: true })}>Allow</button>
      <button onClick={() => thread.answer(toolCallId, { approved: false })}>Deny</button>
    </fieldset>
  );
}
