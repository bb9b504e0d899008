package host

// Reason is the reason that a guest wrote where it refused to answer, printable;
// empty where it wrote none. out is Call.Out of such a call.
func Reason(hook string, out []byte) string { return refusal(hook, out) }
