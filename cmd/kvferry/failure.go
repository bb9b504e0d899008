package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/kvferry/kvferry/cmd/kvferry/refusal"
	"github.com/kvferry/kvferry/plan/pairfile"
)

// fail reports an error that ends the command. where is the file that it is
// about, "" for none.
func (a *app) fail(where string, err error) {
	f := refusal.Of(err)
	if a.json() {
		v := struct {
			File  string           `json:"file,omitempty"`
			Error *refusal.Refusal `json:"error"`
		}{where, f}
		if err := a.emit(v); err != nil {
			fmt.Fprintln(a.stderr, "kvferry:", err)
		}
		return
	}
	msg := f.Message
	var pf *pairfile.Error
	if where != "" && !errors.As(err, &pf) { // a pair file's error names its file itself
		msg = where + ": " + msg
	}
	if a.verbose {
		if long := fmt.Sprintf("%+v", err); long != f.Message && long != msg {
			msg += "\n" + long
		}
	}
	fmt.Fprintf(a.stderr, "kvferry: %s (fault: %s)\n", msg, f.Fault)
}

// eachFile runs one after the other; a failure is reported and does not stop
// the rest.
func (a *app) eachFile(ctx context.Context, files []string, one func(name string) error) error {
	failed := false
	for _, name := range files {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("stopped before %s: %w", name, err)
		}
		err := one(name)
		var usage *usageError
		switch {
		case errors.As(err, &usage):
			return err
		case errors.Is(err, errReported):
			failed = true
		case err != nil:
			failed = true
			a.fail(name, err)
		}
	}
	if failed {
		return errReported
	}
	return nil
}
